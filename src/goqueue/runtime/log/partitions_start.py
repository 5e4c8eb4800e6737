"""Opening every partition of a data directory when a broker starts.

Opening one mostly waits for the disk, so a few threads do it side by side while the loop goes on.
A thread builds the partition and touches nothing that others see; the loop takes it over. Without
threads the loop opens one after the other, always in the same order, for tests that count.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final, NamedTuple

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import TopicPartition
from goqueue.base.units import SECOND_MS
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.topic_opening import Opened, TopicOpening
from goqueue.storage.disk import Disk

THREADS_MAX: Final = 4
"""Threads share one interpreter: with more of them the loop waits longer for its turn."""
PARTITIONS_PER_SLICE: Final = 4
"""Partitions a thread opens before the loop takes them over: few, so that this is quick."""
PROGRESS_EVERY_MS: Final = 5 * SECOND_MS
NAMED_MAX: Final = 3
"""Partitions an error names; the log names every one."""

log = get_logger("goqueue.start")


class _Wanted(NamedTuple):
    """A partition that is to be opened."""

    opening: TopicOpening
    name: TopicPartition


class _Failed(NamedTuple):
    """A partition that cannot be opened, and why."""

    name: TopicPartition
    error: Exception


class PartitionsStart:
    """Opens the partitions of all topics, or says of each why it cannot be opened."""

    def __init__(
        self, openings: Sequence[TopicOpening], disk: Disk, clock: Clock, *, threads: int
    ) -> None:
        self._openings = openings
        self._disk = disk
        self._clock = clock
        self._threads = min(threads, THREADS_MAX)
        wanted = [_Wanted(opening, name) for opening in openings for name in opening.missing]
        self._total = len(wanted)
        self._left = iter(wanted)
        self._opened = 0
        self._failed: list[_Failed] = []
        self._told_ms = clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"<PartitionsStart: {self._opened} of {self._total} open>"

    async def run(self) -> None:
        """Open all of them; if some cannot be opened, raise once every one was tried."""
        try:
            if self._threads:
                await self._run_in_threads()
            else:
                await self._run_here()
            self._check()
        except BaseException:
            for opening in self._openings:
                opening.abandon()
            raise

    async def _run_here(self) -> None:
        self._make_directories()
        for wanted in self._left:
            self._take(_build([wanted]))
            await asyncio.sleep(0)

    async def _run_in_threads(self) -> None:
        pool = ThreadPoolExecutor(self._threads, "open")
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(pool, self._make_directories)
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._threads):
                    workers.create_task(self._work(pool))
        finally:
            # Should the start be cancelled: nothing touches the disk any more once this returns.
            pool.shutdown(cancel_futures=True)

    async def _work(self, pool: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while wanted := list(islice(self._left, PARTITIONS_PER_SLICE)):
            self._take(await loop.run_in_executor(pool, _build, wanted))

    def _make_directories(self) -> None:
        """Make all directories at once, so that each parent is synced once. Any thread.

        Where that fails every partition tries it for itself, and says which it is.
        """
        try:
            paths = [path for opening in self._openings for path in opening.directories]
            self._disk.make_directories(paths)
        except (GoQueueError, OSError):
            return
        for opening in self._openings:
            opening.skip_directories()

    def _take(self, outcomes: Sequence[tuple[_Wanted, Opened | _Failed]]) -> None:
        for wanted, outcome in outcomes:
            if isinstance(outcome, Opened):
                wanted.opening.adopt(outcome)
                self._opened += 1
            else:
                self._failed.append(outcome)
                log.error(
                    LogEvent.PARTITION_OPEN_FAILED,
                    partition=str(outcome.name),
                    error=str(outcome.error) or repr(outcome.error),
                )
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms >= PROGRESS_EVERY_MS:
            self._told_ms = now_ms
            log.info(LogEvent.OPENING_PARTITIONS, opened=self._opened, total=self._total)

    def _check(self) -> None:
        if not self._failed:
            return
        self._failed.sort(key=lambda failed: failed.name)
        reasons = [f"{one.name}: {one.error}" for one in self._failed[:NAMED_MAX]]
        if len(self._failed) > NAMED_MAX:
            reasons.append(f"and {len(self._failed) - NAMED_MAX} more, named in the log")
        message = (
            f"cannot open {len(self._failed)} of {self._total} partitions: {'; '.join(reasons)}"
        )
        first = self._failed[0].error
        if isinstance(first, GoQueueError):
            raise type(first)(message) from first
        first.add_note(message)
        raise first


def _build(wanted: Sequence[_Wanted]) -> list[tuple[_Wanted, Opened | _Failed]]:
    """Read partitions off the disk, one after the other. Any thread."""
    return [(one, _build_one(one)) for one in wanted]


def _build_one(wanted: _Wanted) -> Opened | _Failed:
    try:
        return wanted.opening.build(wanted.name)
    except Exception as error:  # noqa: BLE001 - named with its partition, and raised once all were tried
        return _Failed(wanted.name, error)
