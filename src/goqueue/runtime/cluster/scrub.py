"""Reading every log of a node again and again, slowly, so that damage is found before it is needed.

A replica that is only copied to reads nothing of what it has; its damage would be found when it
leads. What the scrub finds is reported and repaired like any other damage.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import TopicPartition
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.replica_group import ReplicaGroup
from goqueue.runtime.log.mending import elsewhere
from goqueue.runtime.log.partition import Partition
from goqueue.storage.disk import Disk
from goqueue.storage.log_notes import Gap
from goqueue.storage.segment import Segment
from goqueue.storage.segment_repair import Inspection, SegmentPlace

PAUSE_SECONDS: Final = 3_600.0
"""Between two rounds: a small node does not read the same few files all the time."""

log = get_logger("goqueue.partition")


class ScrubHost(Protocol):
    """What a scrub needs of its node."""

    @property
    def groups(self) -> Mapping[TopicPartition, ReplicaGroup]:
        """The replica groups of this node."""
        ...


class Scrub:
    """Reads so many bytes a second, in a thread; with 0 it does not run."""

    def __init__(self, host: ScrubHost, disk: Disk, *, bytes_per_second: int) -> None:
        self._host, self._disk = host, disk
        self._bytes_per_second = bytes_per_second
        self._task: asyncio.Task[None] | None = None
        self.bytes_read = 0

    def __repr__(self) -> str:
        return f"<Scrub: {self.bytes_read} bytes read>"

    def start(self) -> None:
        """Begin the first round."""
        if self._bytes_per_second:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.round()
            except Exception:
                log.exception(LogEvent.SCRUB_CRASHED)
            await asyncio.sleep(PAUSE_SECONDS)

    async def round(self) -> None:
        """Read every segment of every log once."""
        for partition in self._partitions():
            for segment in list(partition.log.segments):
                if not partition.is_closed and partition.log.holds(segment) and segment.size:
                    await self._read(partition, segment)

    def _partitions(self) -> Iterable[Partition]:
        groups = list(self._host.groups.values())
        logs = [one.partition for group in groups for one in group.logs.values()]
        return [partition for partition in logs if partition is not None]

    async def _read(self, partition: Partition, segment: Segment) -> None:
        own = partition.log
        place = SegmentPlace(own.directory, segment.base_offset, own.end_of(segment), segment.size)
        inspection = Inspection(self._disk, place)
        pieces = iter(inspection)
        try:
            while (size := await elsewhere(partial(next, pieces, None))) is not None:
                self.bytes_read += size
                if self._bytes_per_second:
                    await asyncio.sleep(size / self._bytes_per_second)
        except GoQueueError:
            # Retention or compaction has taken the file.
            return
        if not own.holds(segment) or segment.size < place.size:
            return
        gaps = [Gap(one.start_offset, one.end_offset) for one in inspection.damages]
        for gap in gaps:
            if gap.start_offset < gap.end_offset:
                own.report_gap(gap)
        if gaps:
            log.error(
                LogEvent.MESSAGES_UNREADABLE,
                partition=str(partition.name),
                offsets=[list(gap) for gap in gaps],
            )
