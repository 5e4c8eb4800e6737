"""Compacting topics while they are read and written: on request, or when enough of them is dirty.

Reading and writing happen in a thread, putting a compacted segment in its place in the loop. One
partition is compacted at a time, so the memory for its keys is bounded for the whole broker.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from goqueue.base.errors import GoQueueError, InvalidRequestError, ShuttingDownError
from goqueue.base.ids import Offset, PartitionId
from goqueue.base.limits import COMPACTION_KEYS_MAX
from goqueue.core.log.compaction import CompactionRules
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.storage.compaction import Compaction, Survey
from goqueue.storage.disk import Disk
from goqueue.storage.swap import forget_swap, write_checkpoint

T = TypeVar("T")

NOTHING: Final = Survey(records_before=0, records_removed=0)
log = get_logger("goqueue.compactor")


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one partition. ``dirty_ratio`` is what it was before."""

    partition: PartitionId
    records_before: int
    records_after: int
    records_removed: int
    dirty_ratio: float
    error: str | None = None


def dirty_ratio(partition: Partition, *, with_active: bool = False) -> float:
    """Return how much of what could be compacted has not been yet, from 0 to 1."""
    sealed, dirty = partition.log.sealed_bytes, partition.log.dirty_bytes
    active = partition.log.size_bytes - sealed if with_active else 0
    return (dirty + active) / (sealed + active) if sealed + active else 0.0


def is_due(partition: Partition) -> bool:
    """Return True if a partition should be compacted without being asked."""
    settings = partition.settings
    if not settings.is_compacted or partition.is_closed or partition.log.failure is not None:
        return False
    return partition.log.dirty_bytes > 0 and dirty_ratio(partition) >= settings.min_dirty_ratio


class Compactor:
    """Compacts one partition after the other. Without threads all of it runs in the loop."""

    def __init__(self, disk: Disk, clock: Clock, *, in_thread: bool) -> None:
        self._disk = disk
        self._clock = clock
        self._in_thread = in_thread
        # Guards the memory for keys: who compacts, compacts alone.
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[list[Compacted]]] = set()
        self._at_work: Compaction | None = None
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<Compactor at {self._at_work}>"

    async def compact(
        self, topic: Topic, partitions: Sequence[int] | None = None, *, dry_run: bool = False
    ) -> list[Compacted]:
        """Compact a topic now, the segment that takes appends included, or tell what would go.

        Who stops waiting does not stop it.
        """
        if not topic.settings.is_compacted and not dry_run:
            raise InvalidRequestError(
                f"{topic.record.name} keeps every message: its cleanup_policy is"
                f" {topic.settings.cleanup_policy}, not compact"
            )
        numbers = range(len(topic.partitions)) if partitions is None else partitions
        wrong = [number for number in numbers if not 0 <= number < len(topic.partitions)]
        if wrong:
            raise InvalidRequestError(
                f"partitions: invalid partition {wrong[0]}"
                f" (topic has {len(topic.partitions)} partitions)"
            )
        chosen = [topic.partitions[number] for number in dict.fromkeys(numbers)]
        return await self._begin(topic, chosen, is_asked=True, dry_run=dry_run)

    async def compact_due(self, topic: Topic) -> list[Compacted]:
        """Compact the partitions of a topic, and the logs beside them, that are dirty enough."""
        due = [one for one in [*topic.partitions, *topic.states] if is_due(one)]
        return await self._begin(topic, due) if due else []

    async def stop(self) -> None:
        """Call off what is under way and return when no thread is at it any more."""
        self._is_stopped = True
        if self._at_work is not None:
            self._at_work.is_cancelled = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _begin(
        self,
        topic: Topic,
        partitions: Sequence[Partition],
        *,
        is_asked: bool = False,
        dry_run: bool = False,
    ) -> list[Compacted]:
        task = asyncio.get_running_loop().create_task(
            self._run(topic, partitions, is_asked=is_asked, dry_run=dry_run)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _run(
        self, topic: Topic, partitions: Sequence[Partition], *, is_asked: bool, dry_run: bool
    ) -> list[Compacted]:
        results: list[Compacted] = []
        for partition in partitions:
            async with self._turn:
                started = time.perf_counter()
                size = partition.log.size_bytes
                ratio, survey, error = 0.0, NOTHING, None
                try:
                    if is_asked and not dry_run:
                        self._check(partition)
                        await partition.roll()
                    ratio = dirty_ratio(partition, with_active=dry_run)
                    async with partition.rewriting:
                        survey = await self._compact(partition, dry_run=dry_run)
                except GoQueueError as failure:
                    error = failure.message
                    log.warning(
                        LogEvent.COMPACTION_FAILED, partition=str(partition.name), error=error
                    )
                except Exception as failure:
                    error = repr(failure)
                    log.exception(LogEvent.COMPACTION_CRASHED, partition=str(partition.name))
                if not dry_run and error is None:
                    reclaimed = size - partition.log.size_bytes
                    topic.meter.compacted(time.perf_counter() - started, reclaimed)
                    log.info(
                        LogEvent.COMPACTED,
                        partition=str(partition.name),
                        records_removed=survey.records_removed,
                        bytes_reclaimed=reclaimed,
                    )
                results.append(_result(partition, survey, ratio, error))
        return results

    def _check(self, partition: Partition) -> None:
        if self._is_stopped:
            raise ShuttingDownError("the broker is stopping")
        partition.check_open()

    async def _compact(self, partition: Partition, *, dry_run: bool) -> Survey:
        """Compact what is sealed, or with ``dry_run`` look at everything and change nothing."""
        self._check(partition)
        settings = partition.settings
        window_ms = max(settings.tombstone_retention_ms, settings.dedup_window_ms)
        rules = CompactionRules(
            now_ms=self._clock.expiry_ms(window_ms),
            tombstone_retention_ms=settings.tombstone_retention_ms,
            dedup_window_ms=settings.dedup_window_ms,
            keys_max=COMPACTION_KEYS_MAX,
        )
        compaction = Compaction(
            self._disk,
            partition.log,
            rules,
            with_active=dry_run,
            end_max=_end_max(partition),
            hidden=partition.queue.not_yet(),
            cancelled=partition.queue.never(),
        )
        self._at_work = compaction
        try:
            survey = await self._elsewhere(compaction.survey)
            if not dry_run:
                await self._rewrite(partition, compaction)
        except BaseException:
            # Room that is taken for nothing may be what is missing.
            with contextlib.suppress(GoQueueError, OSError):
                compaction.discard()
            raise
        finally:
            self._at_work = None
        return survey

    async def _rewrite(self, partition: Partition, compaction: Compaction) -> None:
        # What goes away may be all that tells of a producer's sequences, so they are saved first.
        partition.snapshots.drop_held()
        save = partition.snapshots.of_producers(partition.log, partition.leadership)
        # What the snapshot knows of must not be lost.
        await partition.durable()
        await self._elsewhere(save)
        directory = partition.log.directory
        self._check(partition)
        partition.log.finish_swap()
        while (swap := await self._elsewhere(compaction.write_next)) is not None:
            # Until it is written anew: after a crash only the log would know of the holes.
            await self._elsewhere(partition.snapshots.drop_queue)
            self._check(partition)
            partition.log.replace(swap)
            partition.queue.empty |= compaction.dropped_by(swap)
            await self._elsewhere(lambda: forget_swap(self._disk, directory))
        self._check(partition)
        end_offset = compaction.end_offset
        await self._elsewhere(lambda: write_checkpoint(self._disk, directory, end_offset))
        partition.log.cleaned_offset = max(partition.log.cleaned_offset, end_offset)

    async def _elsewhere(self, work: Callable[[], T]) -> T:
        """Do something that takes long without holding up the loop."""
        if not self._in_thread:
            return work()
        try:
            return await asyncio.get_running_loop().run_in_executor(None, work)
        except OSError as error:
            raise GoQueueError(f"the files are gone: {error}") from error


def _end_max(partition: Partition) -> Offset | None:
    """Return the offset that segments must end before, where a change of leader may cut some."""
    return None if partition.leadership.replication is None else partition.committed_offset


def _result(partition: Partition, survey: Survey, ratio: float, error: str | None) -> Compacted:
    return Compacted(
        partition=partition.name.partition,
        records_before=survey.records_before,
        records_after=survey.records_before - survey.records_removed,
        records_removed=survey.records_removed,
        dirty_ratio=round(ratio, 4),
        error=error,
    )
