"""The blocking shell: connections of ordinary threads, and a loop for what goes on beside them."""
