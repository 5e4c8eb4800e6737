"""The state logs beside the partitions of a topic: ``state/TOPIC/PARTITION/``, in a cluster only.

What is decided about the messages of a partition (ledgers of groups, changed delays, which dead
letters are left) is journalled in its state log, so that it has the same leader and replicas. One
is made when something is first written to it. It is a log like any other, with small segments, and
compacted.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from goqueue.base.ids import PartitionId, TopicPartition
from goqueue.base.units import MiB
from goqueue.core.topics.settings import COMPACT, TopicSettings
from goqueue.runtime.log.partition import Partition

STATE_LOG_SEGMENT_BYTES: Final = 1 * MiB
"""Small, because what lies in the segment that takes appends is not compacted."""

Builder = Callable[[PartitionId], Partition]


def state_directory_of(name: TopicPartition) -> str:
    """Return where the state log of a partition has its files."""
    return f"state/{name.topic}/{name.partition}"


def state_settings() -> TopicSettings:
    """Return how a state log is kept, whatever the settings of its topic."""
    return TopicSettings(
        retention_ms=0, segment_bytes=STATE_LOG_SEGMENT_BYTES, cleanup_policy=COMPACT
    )


class TopicStates:
    """The state logs of one topic that were made so far."""

    def __init__(self, known: Mapping[PartitionId, Partition], build: Builder | None) -> None:
        self._logs = dict(known)
        self._build = build
        self.on_made: Callable[[Partition], None] = _nothing
        """Is told of each log that a leader makes, before anything is written to it."""

    def __repr__(self) -> str:
        return f"<TopicStates: {len(self._logs)} logs>"

    def __iter__(self) -> Iterator[Partition]:
        return iter([self._logs[number] for number in sorted(self._logs)])

    def of(self, number: int) -> Partition | None:
        """Return the state log beside a partition, if there is one."""
        return self._logs.get(PartitionId(number))

    def make(self, number: int) -> Partition:
        """Return the state log beside a partition; the first time it is made. Waits for the disk.

        It is written to in the same step: ``on_made`` says who leads it, and in which epoch.
        """
        known = self._logs.get(PartitionId(number))
        if known is not None:
            return known
        made = self.open(number)
        self.on_made(made)
        return made

    def open(self, number: int) -> Partition:
        """Do the same and tell nobody: for a follower whose leader has made one."""
        known = self._logs.get(PartitionId(number))
        if known is None:
            assert self._build is not None, "this broker keeps state beside partitions"
            known = self._logs[PartitionId(number)] = self._build(PartitionId(number))
        return known


def _nothing(_: Partition) -> None:
    """Tell nobody."""
