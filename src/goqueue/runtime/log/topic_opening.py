"""Opening the partitions of a topic: at once, or bit by bit with others answered meanwhile."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from goqueue.base.ids import PartitionId, TopicPartition
from goqueue.core.producers.dedup import Remembered
from goqueue.core.topics.catalog import Topic as TopicRecord
from goqueue.observability.metrics import Metrics
from goqueue.runtime.clock import Clock
from goqueue.runtime.commit import Committer
from goqueue.runtime.log.dedup_recall import recall
from goqueue.runtime.log.partition import Partition, directory_of
from goqueue.runtime.log.topic_states import TopicStates, state_directory_of, state_settings
from goqueue.runtime.queue.visibility import PartitionVisibility, Timer
from goqueue.storage.disk import Disk

PARTITIONS_AT_ONCE: Final = 16
"""A topic of more is made in steps: each partition waits for the disk."""


class Opened(NamedTuple):
    """A partition that was read off the disk, and the dedup ids that its log holds."""

    partition: Partition
    remembered: Sequence[Remembered]
    state: Partition | None = None
    """The state log beside it, where there is one."""


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
        is_replicated: bool = False,
        has_states: bool = False,
    ) -> None:
        self.record = record
        self.is_replicated = is_replicated
        self._has_states = has_states
        self._disk = disk
        self._clock = clock
        self._committer = committer
        self._meter = metrics.meter(record.name)
        self._timer = timer
        self._opened: dict[PartitionId, Opened] = {}
        self._has_directories = False

    def __repr__(self) -> str:
        count = len(self._opened)
        return f"<TopicOpening {self.record.name}: {count} of {self.record.partitions}>"

    @property
    def is_whole(self) -> bool:
        """Return True if every partition is open."""
        return len(self._opened) == self.record.partitions

    @property
    def missing(self) -> list[TopicPartition]:
        """The partitions that are not open yet."""
        numbers = map(PartitionId, range(self.record.partitions))
        name = self.record.name
        return [TopicPartition(name, number) for number in numbers if number not in self._opened]

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that are open, in the order of their numbers."""
        return [self._opened[number].partition for number in sorted(self._opened)]

    @property
    def remembered(self) -> list[Remembered]:
        """The dedup ids in the window of the partitions that are open."""
        return [one for number in sorted(self._opened) for one in self._opened[number].remembered]

    @property
    def directories(self) -> list[str]:
        """Where the partitions have their files."""
        return [directory_of(name) for name in self.missing]

    def skip_directories(self) -> None:
        """Take it that the directories of all partitions are there, durably."""
        self._has_directories = True

    def build(self, name: TopicPartition) -> Opened:
        """Read a partition off the disk. Any thread: nothing that others see is touched.

        Of what is shared it only asks the disk and the clock, which may be asked by any thread.
        """
        if not self._has_directories:
            self._disk.make_directory(directory_of(name))
        partition = Partition(
            self._disk,
            name,
            self.record.settings,
            committer=self._committer,
            meter=self._meter,
            queue=PartitionVisibility(self._clock, life=self.record.created_ms),
            is_replicated=self.is_replicated,
        )
        window_ms = self.record.settings.dedup_window_ms
        remembered = list(recall(partition, self._clock, window_ms)) if window_ms else []
        is_kept = self._has_states and self._disk.exists(state_directory_of(name))
        state = self.build_state(name.partition) if is_kept else None
        return Opened(partition, remembered, state)

    def build_state(self, number: PartitionId) -> Partition:
        """Open the state log beside a partition, which may be new. Any thread."""
        name = TopicPartition(self.record.name, number)
        directory = state_directory_of(name)
        self._disk.make_directory(directory)
        return Partition(
            self._disk,
            name,
            state_settings(),
            committer=self._committer,
            meter=self._meter,
            queue=PartitionVisibility(self._clock, life=self.record.created_ms),
            directory=directory,
            is_replicated=self.is_replicated,
        )

    @property
    def states(self) -> TopicStates:
        """The state logs of the partitions that are open."""
        opened = self._opened.items()
        known = {number: one.state for number, one in opened if one.state is not None}
        return TopicStates(known, self.build_state if self._has_states else None)

    def adopt(self, opened: Opened) -> None:
        """Take a partition that was built. In the loop."""
        self._opened[opened.partition.name.partition] = opened
        opened.partition.queue.use_timer(self._timer)

    def follow(self, record: TopicRecord) -> None:
        """Take what the catalogue knows of the topic now."""
        self.record = record

    def keep(self, partitions: Sequence[Partition]) -> None:
        """Take partitions that are open already, of a topic that gets more of them."""
        for partition in partitions:
            self._opened[partition.name.partition] = Opened(partition, ())

    def step(self) -> None:
        """Open one more partition. Waits for the disk."""
        if not self._has_directories:
            self._disk.make_directories(self.directories)
            self.skip_directories()
        number = PartitionId(len(self._opened))
        assert number not in self._opened, "opened one after the other"
        self.adopt(self.build(TopicPartition(self.record.name, number)))

    async def go_on(self, check: Callable[[], None]) -> None:
        """Open the others with pauses between; ``check`` raises when they are not wanted.

        In the loop: a thread that comes late would write into another topic of the same name.
        """
        while not self.is_whole:
            check()
            self.step()
            await asyncio.sleep(0)
        check()

    def abandon(self) -> None:
        """Let go of the files of those that are open."""
        for partition in [*self.partitions, *self.states]:
            partition.abandon()

    def finish(self) -> list[Partition]:
        """Open those that are left and return all of them."""
        while not self.is_whole:
            self.step()
        return self.partitions
