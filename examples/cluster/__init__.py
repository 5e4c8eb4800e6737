"""Three nodes of a cluster on one machine, to be played with."""
