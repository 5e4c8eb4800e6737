"""How often partitions were added to a topic, as its catalogue knows it.

Shape: calculator.
"""

from collections.abc import Sequence
from itertools import pairwise

from goqueue.core.cluster.records import CountChange
from goqueue.core.topics import catalog


def growths(history: Sequence[CountChange]) -> tuple[catalog.Growth, ...]:
    """Return what the numbers of partitions that a topic had say of its growth."""
    return tuple(
        catalog.Growth(partitions=before.count, at_ms=change.at_ms, ends=change.ends)
        for before, change in pairwise(history)
    )
