"""Dead letters: how messages get there, and how people send them back."""
