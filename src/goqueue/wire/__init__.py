"""What is said on the wire, without any socket."""
