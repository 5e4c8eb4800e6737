"""Messages as a queue: polls, leases, settlements, and what a partition knows for them."""
