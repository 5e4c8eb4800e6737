"""What a group has been given of a partition, and what became of it."""
