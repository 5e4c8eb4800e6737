"""Consumer groups: who is in them, and who may read which partition."""
