"""Topics and partitions at work: appending, reading, compacting."""
