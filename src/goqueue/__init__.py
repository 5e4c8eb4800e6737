"""GoQueue: a durable message broker that is both a stream and a queue."""
