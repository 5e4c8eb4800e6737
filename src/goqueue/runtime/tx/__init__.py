"""Transactions at work: the coordinator, its producers, and how each one ends."""
