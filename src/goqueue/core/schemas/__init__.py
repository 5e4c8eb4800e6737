"""The schema registry: what messages may look like, and how that may change."""
