"""Many partitions as columns of small numbers: a hundred thousand of them in a megabyte.

Shape: codec. Sets of replicas are kept once and named by their ordinal. A column whose values are
all the same is that one value.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat

import msgspec

from goqueue.base.ids import LeaderEpoch, NodeId, PartitionEpoch
from goqueue.core.cluster.records import PartitionRecord, Replicas

Column = list[int]


class PartitionColumns(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The records of partitions that follow one another."""

    count: int
    replicas: Column
    isr: Column
    leader: Column
    leader_epoch: Column
    partition_epoch: Column
    elr: Column
    last: Column
    adding: Column
    removing: Column


class ReplicaSets:
    """The distinct sets of replicas of some partitions, each with its ordinal."""

    def __init__(self) -> None:
        self.ordinals: dict[Replicas, int] = {}

    @property
    def table(self) -> list[list[NodeId]]:
        """All sets in the order of their ordinals."""
        return [list(one) for one in self.ordinals]

    def pack(self, partitions: Sequence[PartitionRecord]) -> PartitionColumns:
        """Return partitions as columns, and learn the sets they use."""
        ordinals = self.ordinals
        return PartitionColumns(
            count=len(partitions),
            replicas=_short(
                [ordinals.setdefault(one.replicas, len(ordinals)) for one in partitions]
            ),
            isr=_short([one.isr for one in partitions]),
            leader=_short([one.leader for one in partitions]),
            leader_epoch=_short([one.leader_epoch for one in partitions]),
            partition_epoch=_short([one.partition_epoch for one in partitions]),
            elr=_short([one.elr for one in partitions]),
            last=_short([one.last for one in partitions]),
            adding=_short([one.adding for one in partitions]),
            removing=_short([one.removing for one in partitions]),
        )


def unpack(sets: Sequence[Replicas], columns: PartitionColumns) -> list[PartitionRecord]:
    """Return the records in columns; those with equal replicas share them."""
    count = columns.count
    rows = zip(
        _whole(columns.replicas, count),
        _whole(columns.isr, count),
        _whole(columns.leader, count),
        _whole(columns.leader_epoch, count),
        _whole(columns.partition_epoch, count),
        _whole(columns.elr, count),
        _whole(columns.last, count),
        _whole(columns.adding, count),
        _whole(columns.removing, count),
        strict=True,
    )
    records = [
        PartitionRecord(
            sets[ordinal],
            isr,
            leader,
            LeaderEpoch(leader_epoch),
            PartitionEpoch(partition_epoch),
            elr,
            last,
            adding,
            removing,
        )
        for ordinal, isr, leader, leader_epoch, partition_epoch, elr, last, adding, removing in rows
    ]
    assert len(records) == count, "every column is whole"
    return records


def _short(column: Column) -> Column:
    return column[:1] if len(column) > 1 and column.count(column[0]) == len(column) else column


def _whole(column: Column, count: int) -> Iterable[int]:
    return repeat(column[0], count) if len(column) == 1 else column
