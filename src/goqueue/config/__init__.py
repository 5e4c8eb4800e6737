"""What an operator may choose, and where each choice came from."""
