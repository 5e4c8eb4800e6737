"""Consuming: membership, leases, settlements."""
