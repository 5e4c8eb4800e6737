"""The asynchronous shell: connections of an event loop."""
