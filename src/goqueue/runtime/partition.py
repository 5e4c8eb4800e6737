"""One partition at work: its log, its producers, and those who wait for news of it.

Shape: host of a decider. Judging, appending and applying happen in one step without ``await``, so
the order in the log is the order of the state.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    ShuttingDownError,
    StorageFailedError,
    TopicNotFoundError,
)
from goqueue.base.ids import Offset, PartitionId, TopicPartition
from goqueue.base.units import NS_PER_US, KiB, MiB
from goqueue.core.producers.ledger import Appended, Original
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.control import Control
from goqueue.core.record.stamp import NO_STAMP, Repeat
from goqueue.core.topics.settings import TopicSettings
from goqueue.observability.logging import get_logger
from goqueue.observability.metrics import TopicMeter
from goqueue.runtime import queue_snapshot
from goqueue.runtime.commit import Committer
from goqueue.runtime.partition_state import recover_state
from goqueue.runtime.partition_trace import PartitionTrace, Traced
from goqueue.runtime.producer_snapshot import encode_snapshot, write_snapshot
from goqueue.runtime.queue_index import QueueIndex
from goqueue.storage.disk import Disk
from goqueue.storage.log_reader import LogReader, Piece
from goqueue.storage.partition_log import Commit, PartitionLog

SNAPSHOT_EVERY_BYTES: Final = 16 * MiB
SNAPSHOT_EVERY_FRAMES: Final = 4_096
"""How much of the log may have to be replayed at start for the producers' sake."""

log = get_logger("goqueue.partition")


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages went. ``repeats`` names those that were left out, and their originals."""

    partition: PartitionId
    base_offset: Offset
    is_duplicate: bool = False
    repeats: tuple[Repeat, ...] = ()
    misfits: Mapping[int, str] = {}
    """Why messages were refused, by row; their repeats have no offset."""
    written: Sequence[CheckedFrame] = ()
    """What of them is in the log now, and was not before."""
    traced: Traced | None = None
    """Those of them whose traces are noted once they are acknowledged."""


class Partition:
    """Owns one log. Only the event loop's thread calls it."""

    def __init__(
        self,
        disk: Disk,
        name: TopicPartition,
        settings: TopicSettings,
        *,
        committer: Committer,
        meter: TopicMeter,
        queue: QueueIndex,
    ) -> None:
        self._disk = disk
        self._meter = meter
        self._directory = f"logs/{name.topic}/{name.partition}"
        self._committer = committer
        self._rolling: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._unsynced_bytes = 0
        self._bytes_since_snapshot = 0
        self._frames_since_snapshot = 0
        self._queue_debt_bytes = 0
        self._queue_snapshot_bytes = 0
        self.name = name
        self.settings = settings
        self.log = PartitionLog(disk, self._directory, segment_bytes=settings.segment_bytes)
        self.queue = queue
        self.ledger = recover_state(disk, self._directory, self.log, queue)
        self.reader = LogReader(self.log)
        self.trace: PartitionTrace | None = None
        self.is_closed = False
        self.is_waited_for = True
        """Whether readers may wait here for news; not when the broker is about to stop."""
        self.is_compacting = False
        self._is_removed = False
        self._seen_offset = Offset(0)

    def __repr__(self) -> str:
        return f"<Partition {self.name} {self.log.start_offset}..{self.log.end_offset}>"

    @property
    def stable_offset(self) -> Offset:
        """Return the offset up to which a read-committed reader may go: no transaction is open."""
        return self.queue.tx.stable_offset(self.visible_offset)

    @property
    def visible_offset(self) -> Offset:
        """Return the offset behind the last message a reader may see.

        Where acks wait for the disk, readers do too: what they saw is never taken back by a crash.
        """
        if not self.settings.is_fsync:
            return self.log.end_offset
        return min(max(self.log.durable_offset, self._seen_offset), self.log.end_offset)

    def configure(self, settings: TopicSettings) -> None:
        """Take new settings."""
        # What readers saw while acks did not wait for the disk stays visible.
        self._seen_offset = self.visible_offset
        self.settings = settings
        self.log.segment_bytes = settings.segment_bytes
        if settings.is_fsync:
            # What was acknowledged without a sync is not visible again before it has one.
            self.sync_soon()

    # Publishing.

    def check_writable(self) -> None:
        """Refuse a partition that is gone, closed or failed by its disk."""
        if self._is_removed:
            raise TopicNotFoundError(f"topic not found: {self.name.topic}")
        if self.is_closed:
            raise ShuttingDownError("the broker is stopping")
        self.log.check_writable()

    def judge(self, frames: Sequence[CheckedFrame]) -> list[Original]:
        """Return where the originals are of those frames, from the first on, published before.

        A crash may have kept the beginning of a request only; the rest of its repeat is news.
        """
        first = frames[0].stamp
        if not first.is_idempotent and first != NO_STAMP:
            raise InvalidRequestError("a stamp without a producer has no epoch and no sequence")
        count = frames[0].sequence_count
        for frame in frames[1:]:
            expected = first.after(count) if first.is_idempotent else NO_STAMP
            if frame.stamp != expected:
                raise InvalidRequestError("the frames of one request follow one another")
            count += frame.sequence_count
        originals: list[Original] = []
        for frame in frames:
            original = self.ledger.judge(frame.stamp, frame.sequence_count)
            if original is None:
                break
            originals.append(original)
        return originals

    async def make_room(self, size: int) -> None:
        """Return when the active segment takes so many bytes, beginning a new one if needed.

        While a segment is being sealed nobody else may append to it, however small.
        """
        while self._rolling is not None or not self.log.fits(size):
            if self._rolling is None:
                self._rolling = asyncio.get_running_loop().create_task(self._roll())
            await asyncio.shield(self._rolling)

    async def roll(self) -> None:
        """Begin a new segment, unless there is nothing in the one at hand."""
        if self._rolling is None and not self.log.is_empty:
            self._rolling = asyncio.get_running_loop().create_task(self._roll())
        if self._rolling is not None:
            await asyncio.shield(self._rolling)

    async def _roll(self) -> None:
        try:
            # The bulk of the bytes is synced in a thread; what is left to seal is small. And as
            # long as a commit is under way, it writes the index that sealing completes.
            await self.durable()
            while self.log.is_committing:
                await self.durable()
            self.check_writable()
            self.log.roll()
        finally:
            self._rolling = None
            self.wake()

    def append(self, frames: Sequence[CheckedFrame]) -> Offset:
        """Write judged frames and remember their producer. No ``await`` between judge and this."""
        self.check_writable()
        base = self.log.append(frames)
        offset = base
        for frame in frames:
            if frame.stamp is not NO_STAMP:
                self.ledger.apply(
                    Appended(
                        stamp=frame.stamp,
                        sequence_count=frame.sequence_count,
                        base_offset=offset,
                        repeats=frame.repeats,
                    )
                )
            if frame.queue is not None:
                self.queue.note(offset, frame.queue)
            if frame.transaction:
                self.queue.tx.note(frame.transaction, offset, frame.rows)
            offset = Offset(offset + frame.rows)
        size = sum([len(frame.frame) for frame in frames])
        self._unsynced_bytes += size
        self._bytes_since_snapshot += size
        self._frames_since_snapshot += len(frames)
        if not self.settings.is_fsync:
            self.wake()
        return base

    def trace_of(self, frames: Sequence[CheckedFrame], base: Offset) -> Traced | None:
        """Return which of the messages that were just appended are traced."""
        return None if self.trace is None else self.trace.appended(frames, base)

    def append_beyond(self, frames: Sequence[CheckedFrame]) -> Offset:
        """Write frames of the broker's own at once, beyond the segment's size if need be.

        A new segment is begun as soon as nothing is being synced.
        """
        is_full = not self.log.fits(sum([len(frame.frame) for frame in frames]))
        base = self.append(frames)
        if is_full and self._rolling is None:
            self._rolling = asyncio.get_running_loop().create_task(self._roll())
            # Its failure is the partition's, which every later append is told.
            self._rolling.add_done_callback(_forget_failure)
        return base

    def end_transactions(self, ends: Sequence[tuple[CheckedFrame, Control]]) -> None:
        """Write the ends of transactions and let those know who wait for their messages."""
        self.append_beyond([frame for frame, _ in ends])
        for _, control in ends:
            self.queue.end_transaction(control)
        self.wake()

    # Committing.

    def is_free(self, size: int) -> bool:
        """Tell whether so many bytes can be appended and synced without waiting for anybody."""
        is_open = self._rolling is None and not self._unsynced_bytes and not self.log.is_committing
        return is_open and self.log.fits(size) and self._committer.is_free(size)

    def sync_here(self) -> None:
        """Make everything appended so far durable before returning, or raise."""
        self._committer.sync_here(self)

    def sync_at_once(self) -> bool:
        """Make everything appended so far durable if one quick sync does it, and tell, or raise."""
        self.check_writable()
        is_open = self._rolling is None and not self.log.is_committing
        if not is_open or not self._committer.is_free(self._unsynced_bytes):
            return False
        self._committer.sync_here(self)
        return True

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything appended so far is durable."""
        self.check_writable()
        return self._committer.durable(self)

    def sync_soon(self) -> None:
        """Ask for a sync in the background if there is anything to sync."""
        if self._unsynced_bytes and self.log.failure is None:
            self._committer.mark(self)

    def unsynced_bytes(self) -> int:
        """Return how many bytes a sync would cover."""
        return self._unsynced_bytes

    def begin_commit(self) -> tuple[Commit, Callable[[], None]]:
        """Return what to sync, and the producers' snapshot to write beside it when one is due."""
        self.check_writable()
        self._unsynced_bytes = 0
        commit = self.log.begin_commit()
        is_due = (
            self._bytes_since_snapshot >= SNAPSHOT_EVERY_BYTES
            or self._frames_since_snapshot >= SNAPSHOT_EVERY_FRAMES
        )
        return commit, self._snapshot(commit.end_offset) if is_due else _nothing

    def finish_commit(
        self, commit: Commit, error: StorageFailedError | None, *, seconds: float
    ) -> None:
        """Take the outcome of a sync and tell those who wait for news."""
        self._meter.synced(seconds, is_failed=error is not None)
        if error is not None:
            log.error(
                "partition takes no more writes: a sync failed",
                partition=str(self.name),
                error=error.message,
            )
        if not self.is_closed:
            self.log.finish_commit(commit, error)
            self.wake()

    def _snapshot(self, end_offset: Offset, *, is_last: bool = False) -> Callable[[], None]:
        frames, size = self._frames_since_snapshot, self._bytes_since_snapshot
        self._bytes_since_snapshot = self._frames_since_snapshot = 0
        content = encode_snapshot(self.ledger, end_offset)
        # A large index is written less often than a small one, so that its share stays small.
        self._queue_debt_bytes += max(size, frames * KiB)
        queue_content = None
        if is_last or self._queue_debt_bytes >= self._queue_snapshot_bytes:
            queue_content = queue_snapshot.encode_snapshot(self.queue, end_offset)
            self._queue_debt_bytes, self._queue_snapshot_bytes = 0, len(queue_content)
        return partial(self._write_snapshot, content, queue_content)

    def _write_snapshot(self, content: bytes, queue_content: bytes | None) -> None:
        """Write snapshots or leave them: without them only the next start is slower. Any thread."""
        try:
            write_snapshot(self._disk, self._directory, content)
            if queue_content is not None:
                queue_snapshot.write_snapshot(self._disk, self._directory, queue_content)
        except (GoQueueError, OSError) as error:
            log.warning("no snapshot", partition=str(self.name), error=str(error))

    async def save_producers(self) -> Callable[[], None]:
        """Return what writes the producers' snapshot as it would be now, for any thread.

        Returned when everything the snapshot knows of is durable. It has a temporary file of its
        own, because the snapshot beside a sync may be written at the same time.
        """
        content = encode_snapshot(self.ledger, self.log.end_offset)
        await self.durable()
        return partial(write_snapshot, self._disk, self._directory, content, mark=".compaction")

    # Reading.

    def check_offset(self, offset: Offset) -> None:
        """Refuse an offset that is gone or was never written."""
        start, end = self.log.start_offset, self.visible_offset
        if not start <= offset <= end:
            raise OffsetOutOfRangeError(
                f"{self.name}: offset {offset} is not between {start} (earliest) and {end} (latest)"
            )

    async def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Piece:
        """Return frames from an offset on; bytes that are not in memory are read in a thread."""
        location = self.reader.locate(offset, bytes_max=bytes_max)
        chunk = location.file.read_cached(location.position, location.size)
        while chunk is None:
            loop = asyncio.get_running_loop()
            chunk = await loop.run_in_executor(
                None, location.file.read, location.position, location.size
            )
            # Retention may have deleted the segment meanwhile, or compaction replaced it.
            self.check_offset(offset)
            if not self.log.holds(location.segment):
                location = self.reader.locate(offset, bytes_max=bytes_max)
                chunk = location.file.read_cached(location.position, location.size)
        known = len(self.log.recovery.gaps)
        piece = self.reader.pick(
            location, chunk, offset, end_offset=end_offset, bytes_max=bytes_max
        )
        if len(self.log.recovery.gaps) > known:
            log.error(
                "messages cannot be read: bad checksum",
                partition=str(self.name),
                offsets=[list(gap) for gap in piece.gaps],
            )
        return piece

    def find_time(self, timestamp_us: int) -> Offset | None:
        """Return the first visible offset at or after a time."""
        found = self.reader.find_time(timestamp_us)
        return found if found is not None and found < self.visible_offset else None

    def watch(self) -> asyncio.Future[None]:
        """Return a future that is done at the next news; ``unwatch`` discards it."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.add(future)
        return future

    def unwatch(self, future: asyncio.Future[None]) -> None:
        """Stop waiting."""
        self._waiters.discard(future)

    def wake(self) -> None:
        """Tell those who wait that more may be visible."""
        waiters, self._waiters = self._waiters, set()
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def end_waits(self) -> None:
        """Let those go on who wait for news, and nobody wait from now on."""
        self.is_waited_for = False
        self.wake()

    def expire(self, now_ms: int) -> int:
        """Delete the segments retention no longer keeps; return how many."""
        if not self.settings.is_expired or self.is_compacting:
            return 0
        if self._rolling is not None or self.log.is_committing:
            return 0
        count = self.log.expire(
            now_ms=now_ms,
            retention_ms=self.settings.retention_ms,
            retention_bytes=self.settings.retention_bytes,
            held_from=self.queue.held_from(retention_ms=self.settings.retention_ms),
        )
        if count:
            self.queue.trim(self.log.start_offset)
        return count

    def close(self) -> None:
        """Make everything durable and let go of the files."""
        if self.is_closed:
            return
        self.is_closed = True
        self.end_waits()
        self.log.close()
        if self.log.failure is None:
            self._snapshot(self.log.end_offset, is_last=True)()

    def abandon(self) -> None:
        """Let go of the files without syncing: the partition is about to be removed."""
        self.is_closed = self._is_removed = True
        self.end_waits()
        for segment in self.log.segments:
            segment.close()


def trace_published(
    partitions: Sequence[Partition], published: Published, received_us: int, durability: str
) -> None:
    """Note traced messages that were acknowledged."""
    trace = partitions[published.partition].trace
    if trace is not None and published.traced is not None:
        received_ns = received_us * NS_PER_US
        trace.published(published.traced, received_ns=received_ns, durability=durability)


def _forget_failure(task: asyncio.Task[None]) -> None:
    """Look at how a task ended, so that nobody complains that it was not looked at."""
    if not task.cancelled():
        task.exception()


def _nothing() -> None:
    """Write nothing beside a sync."""
