"""What a client says and understands, without I/O: no event loop, no thread, no socket."""
