"""Delayed messages at work: found, changed, and woken when they are due."""
