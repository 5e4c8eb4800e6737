"""Which topics there are, and how each is kept."""
