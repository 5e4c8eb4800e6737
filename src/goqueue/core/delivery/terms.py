"""Under which terms messages are leased.

Shape: codec.
"""

from typing import NamedTuple


class LeaseTerms(NamedTuple):
    """Who takes messages, for how long, and under which nonce."""

    nonce: int
    member: str
    deadline_ms: int
    lease_ms: int
    at_ms: int
