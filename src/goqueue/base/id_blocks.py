"""Whose an id is that was given out in blocks (``core/cluster/blocks.py``).

Blocks go round the owners, so the id alone names its owner.
"""

from goqueue.base.cluster_limits import ID_BLOCK, ID_OWNERS_MAX


def owner_of(number: int) -> int:
    """Return the owner of an id."""
    return (number - 1) // ID_BLOCK % ID_OWNERS_MAX
