"""Consumer groups at work: members, generations, rebalances."""
