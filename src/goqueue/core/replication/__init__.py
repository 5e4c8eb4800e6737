"""Replication of logs: epochs, the high watermark, replicas in sync, sessions between nodes."""
