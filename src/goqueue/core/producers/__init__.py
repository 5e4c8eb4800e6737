"""Who publishes: identities, sequences, repeats, and the choice of a partition."""
