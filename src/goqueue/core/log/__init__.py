"""The log without files: indexes, scanning, retention."""
