"""Bytes at rest: the disk, segments, partition logs and journals."""
