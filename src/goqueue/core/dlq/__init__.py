"""Dead letters: what they carry, which of them are meant, and how they go back."""
