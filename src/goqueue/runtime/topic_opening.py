"""Opening the partitions of a topic: at once, or bit by bit with others answered meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Final

from goqueue.base.ids import PartitionId, TopicPartition
from goqueue.core.topics.catalog import Topic as TopicRecord
from goqueue.observability.metrics import Metrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.commit import Committer
from goqueue.runtime.partition import Partition
from goqueue.runtime.queue_index import QueueIndex, Timer
from goqueue.storage.disk import Disk

PARTITIONS_AT_ONCE: Final = 16
"""A topic of more is made in steps: each partition waits for the disk."""


class TopicOpening:
    """A topic the catalogue knows, and as many of its partitions as are open."""

    def __init__(
        self,
        record: TopicRecord,
        disk: Disk,
        *,
        clock: Clock,
        committer: Committer,
        metrics: Metrics,
        timer: Timer,
    ) -> None:
        self.record = record
        self._disk = disk
        self._clock = clock
        self._committer = committer
        self._meter = metrics.meter(record.name)
        self._timer = timer
        self.partitions: list[Partition] = []

    def __repr__(self) -> str:
        count = len(self.partitions)
        return f"<TopicOpening {self.record.name}: {count} of {self.record.partitions}>"

    @property
    def is_whole(self) -> bool:
        """Tell whether every partition is open."""
        return len(self.partitions) == self.record.partitions

    def step(self) -> None:
        """Open one more partition. Waits for the disk."""
        number = PartitionId(len(self.partitions))
        partition = Partition(
            self._disk,
            TopicPartition(self.record.name, number),
            self.record.settings,
            committer=self._committer,
            meter=self._meter,
            queue=QueueIndex(self._clock, life=self.record.created_ms, timer=self._timer),
        )
        self.partitions.append(partition)

    async def go_on(self, check: Callable[[], None]) -> None:
        """Open the others with pauses between; ``check`` raises when they are not wanted."""
        while not self.is_whole:
            check()
            self.step()
            await asyncio.sleep(0)
        check()

    def abandon(self) -> None:
        """Let go of the files of those that are open."""
        for partition in self.partitions:
            partition.abandon()

    def finish(self) -> list[Partition]:
        """Open those that are left and return all of them."""
        while not self.is_whole:
            self.step()
        return self.partitions
