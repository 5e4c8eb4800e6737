"""What every transport goes through before it reaches the broker."""
