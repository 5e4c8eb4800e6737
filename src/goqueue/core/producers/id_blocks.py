"""Whose block of ids a producer's id is from, in a cluster.

Shape: calculator. Blocks go round the owners, so an id says by itself who gave it out. Producers
with transactions have ids of the partition of ``__transactions`` that holds their state: any node
finds their coordinator. All others have ids of one owner, which is none of these partitions. All
are of one kind: ids of two kinds may be the same numbers.
"""

from typing import Final

from goqueue.base.cluster_limits import ID_BLOCK, ID_OWNERS_MAX, PLAIN_PRODUCERS_OWNER

PRODUCER_IDS: Final = "producer"
"""The kind of the blocks of all producer ids."""


def owner_of(number: int) -> int:
    """Return the owner of an id."""
    return (number - 1) // ID_BLOCK % ID_OWNERS_MAX


def is_transactional(producer_id: int) -> bool:
    """Return True if a producer has transactions, by its id alone."""
    return owner_of(producer_id) != PLAIN_PRODUCERS_OWNER
