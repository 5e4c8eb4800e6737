"""A long mixed load on one broker, and what it does to the broker's memory, files and threads."""
