"""Which partition a message belongs to.

Shape: calculator.
"""

from collections.abc import Iterable
from typing import cast

from mmh3 import mmh3_32_uintdigest

from goqueue.base.ids import PartitionId


def partition_of_key(key: bytes, partitions: int) -> PartitionId:
    """Return the partition of a key: murmur3-32 with seed 0, modulo the number of partitions."""
    return PartitionId(mmh3_32_uintdigest(key) % partitions)


class RoundRobin:
    """Deals keyless messages out evenly."""

    __slots__ = ("_next", "_partitions")

    def __init__(self, partitions: int, start: int = 0) -> None:
        self._partitions = partitions
        self._next = start % partitions

    def take(self) -> PartitionId:
        """Return the next partition in turn."""
        partition = self._next
        self._next = (partition + 1) % self._partitions
        return PartitionId(partition)


def choose_partitions(
    keys: Iterable[bytes | None], partitions: int, turns: RoundRobin
) -> list[PartitionId]:
    """Return the partition of each message by its key, or in turn where it has none."""
    numbers = [
        turns.take() if key is None else mmh3_32_uintdigest(key) % partitions for key in keys
    ]
    return cast("list[PartitionId]", numbers)
