"""Five lanes, each with its share."""
