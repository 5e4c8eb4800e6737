"""One partition at work: its log, its producers, and those who wait for news of it.

Shape: host of a decider. Judging, appending and applying happen in one step without ``await``, so
the order in the log is the order of the state.
"""

import asyncio
from collections.abc import Callable, Sequence

from goqueue.base.errors import (
    OffsetOutOfRangeError,
    ShuttingDownError,
    StorageFailedError,
    TopicNotFoundError,
)
from goqueue.base.ids import Offset, TopicPartition
from goqueue.base.units import NS_PER_MS, US_PER_MS
from goqueue.core.producers.ledger import Appended
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.control import Control
from goqueue.core.record.stamp import NO_STAMP
from goqueue.core.topics.settings import TopicSettings
from goqueue.core.tx.index import TxIndex
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.observability.metrics import TopicMeter
from goqueue.runtime.commit import Committer
from goqueue.runtime.log.leadership import Leadership, Role
from goqueue.runtime.log.partition_reads import read_piece
from goqueue.runtime.log.partition_snapshots import PartitionSnapshots
from goqueue.runtime.log.partition_state import recover_state
from goqueue.runtime.machine import Waiters, unawaited
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.runtime.tracing.partition_trace import PartitionTrace, Traced
from goqueue.storage.disk import Disk
from goqueue.storage.log_commit import Commit
from goqueue.storage.log_reader import LogReader
from goqueue.storage.partition_log import PartitionLog

log = get_logger("goqueue.partition")


def directory_of(name: TopicPartition) -> str:
    """Return where a partition has its files."""
    return f"logs/{name.topic}/{name.partition}"


class Partition:
    """Owns one log. Only the event loop's thread calls it; any thread may make it."""

    def __init__(
        self,
        disk: Disk,
        name: TopicPartition,
        settings: TopicSettings,
        *,
        committer: Committer,
        meter: TopicMeter,
        queue: PartitionVisibility,
        is_replicated: bool = False,
        directory: str = "",
    ) -> None:
        self._disk, self._meter = disk, meter
        self._directory = directory or directory_of(name)
        self.committer = committer
        self.rolling: asyncio.Task[None] | None = None
        self.waiters = Waiters()
        self._unsynced_bytes = 0
        self.name, self.settings = name, settings
        self.log = PartitionLog(disk, self._directory, segment_bytes=settings.segment_bytes)
        self.leadership = Leadership(self.log, Role.FOLLOWER if is_replicated else Role.LEADER)
        self.queue = queue
        self.ledger = recover_state(
            disk, self._directory, self.log, queue, is_replicated=is_replicated
        )
        self.snapshots = PartitionSnapshots(disk, self._directory, self.ledger, queue)
        if is_replicated:
            self.snapshots.unknown = tuple(self.log.recovery.gaps)
        self.reader = LogReader(self.log)
        self.trace: PartitionTrace | None = None
        self.is_closed = False
        self.is_waited_for = True
        """Whether readers may wait here for news; not when the broker is about to stop."""
        self._is_removed = False
        self.rewriting = asyncio.Lock()
        """Guards the sealed segments: compaction and repair put others in their place."""
        self._seen_offset = Offset(0)

    def __repr__(self) -> str:
        return f"<Partition {self.name} {self.log.start_offset}..{self.log.end_offset}>"

    @property
    def is_compacting(self) -> bool:
        """Whether sealed segments are being written anew, so that none may go meanwhile."""
        return self.rewriting.locked()

    @property
    def stable_offset(self) -> Offset:
        """Return the offset up to which a read-committed reader may go: no transaction is open."""
        return self.queue.tx.stable_offset(self.visible_offset)

    @property
    def visible_offset(self) -> Offset:
        """Return the offset behind the last message a reader may see.

        Where acks wait for the disk, readers do too: what they saw is never taken back by a crash.
        """
        end_offset = self.log.end_offset
        if not self.settings.is_fsync:
            return self.leadership.replicated(end_offset)
        return min(max(self.leadership.committed_offset, self._seen_offset), end_offset)

    @property
    def committed_offset(self) -> Offset:
        """Return the offset behind the last message that may be acknowledged."""
        return self.leadership.committed_offset

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
        """Refuse a partition that is led elsewhere, gone, closed or failed by its disk."""
        self.leadership.check_append()
        if self.is_closed:
            self.check_open()
        self.log.check_writable()

    def check_open(self) -> None:
        """Refuse a partition that is gone, closed or failed by its disk."""
        if self._is_removed:
            raise TopicNotFoundError(f"topic not found: {self.name.topic}")
        if self.is_closed:
            raise ShuttingDownError("the broker is stopping")
        self.log.check_writable()

    async def make_room(self, size: int) -> None:
        """Return when the active segment takes so many bytes, beginning a new one if needed.

        While a segment is being sealed nothing may be appended to it, however small.
        """
        while self.rolling is not None or not self.log.fits(size):
            await asyncio.shield(self.begin_roll())

    async def roll(self) -> None:
        """Begin a new segment, unless there is nothing in the one at hand."""
        if self.rolling is not None or not self.log.is_empty:
            await asyncio.shield(self.begin_roll())

    def begin_roll(self) -> asyncio.Task[None]:
        """Begin a new segment as soon as nothing is being synced; return what does it."""
        if self.rolling is None:
            self.rolling = asyncio.get_running_loop().create_task(self._roll())
        return self.rolling

    async def _roll(self) -> None:
        try:
            # The bulk of the bytes is synced in a thread; what is left to seal is small. And as
            # long as a commit is under way, it writes the index that sealing completes.
            await self.durable()
            while self.log.is_committing:
                await self.durable()
            self.check_open()
            self.log.roll()
            self.leadership.synced()
        finally:
            self.rolling = None
            self.wake()

    def append(self, frames: Sequence[CheckedFrame], *, is_own: bool = False) -> Offset:
        """Write judged frames and remember their producer. No ``await`` between judge and this.

        Frames of the broker's own are written beyond the segment's size if need be; a new segment
        is begun as soon as nothing is being synced.
        """
        self.check_writable()
        size = sum([len(frame.frame) for frame in frames])
        is_full = is_own and not self.log.fits(size)
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
                sent_ms = (
                    frame.first_timestamp_us // US_PER_MS,
                    frame.header.timestamp_ns // NS_PER_MS,
                )
                self.queue.note(offset, frame.queue, sent_ms)
            if frame.transaction:
                self.queue.tx.note(frame.transaction, offset, frame.rows)
            offset = Offset(offset + frame.rows)
        self.note_appended(size, len(frames))
        if is_full:
            # Its failure is the partition's, which every later append is told.
            unawaited(self.begin_roll())
        return base

    def note_appended(self, size: int, count: int) -> None:
        """Count frames that were written and are not synced yet."""
        self._unsynced_bytes += size
        self.snapshots.bytes_since += size
        self.snapshots.frames_since += count
        self.leadership.appended()
        if not self.settings.is_fsync:
            self.wake()

    def trace_of(self, frames: Sequence[CheckedFrame], base: Offset) -> Traced | None:
        """Return which of the messages that were just appended are traced."""
        return None if self.trace is None else self.trace.appended(frames, base)

    def end_transactions(self, ends: Sequence[tuple[CheckedFrame, Control]]) -> None:
        """Write the ends of transactions and let those know who wait for their messages."""
        base = self.append([frame for frame, _ in ends], is_own=True)
        self.queue.empty.add_range(base, base + len(ends))
        for _, control in ends:
            self.leadership.note_end(control.number)
            self.queue.end_transaction(control)
        self.wake()

    # Committing.

    def is_free(self, size: int, count: int = 1) -> bool:
        """Return True if bytes can be appended and synced at once, here as in others of a count."""
        is_open = self.rolling is None and not self._unsynced_bytes and not self.log.is_committing
        is_open = is_open and self.leadership.is_alone
        return is_open and self.log.fits(size) and self.committer.is_free(size, count)

    def sync_here(self) -> None:
        """Commit everything appended so far before returning, or raise."""
        self.committer.sync_here(self)

    def sync_at_once(self) -> bool:
        """Commit everything appended so far if one quick sync does it, and tell, or raise."""
        self.leadership.check_role()
        self.check_open()
        is_open = self.rolling is None and not self.log.is_committing and self.leadership.is_alone
        if not is_open or not self.committer.is_free(self._unsynced_bytes):
            return False
        self.committer.sync_here(self)
        return True

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything appended so far is on this disk."""
        self.check_open()
        return self.committer.durable(self)

    def committed(self, requests: int = 1) -> asyncio.Future[None]:
        """Return a future that is done when everything appended so far may be acknowledged."""
        self.leadership.check_role()
        if self.log.failure is not None:
            self.leadership.check_disk(self.log.failure)
        self.check_open()
        durable = self.committer.durable(self, requests)
        if self.leadership.replication is None:
            return durable
        return self.leadership.committed(durable)

    def note_high_watermark(self) -> None:
        """Let those go on who wait for the high watermark, which has moved."""
        self.leadership.advance()
        self.wake()

    def sync_soon(self) -> None:
        """Ask for a sync in the background if there is anything to sync."""
        if self._unsynced_bytes and self.log.failure is None:
            self.committer.mark(self)

    def unsynced_bytes(self) -> int:
        """Return how many bytes a sync would cover."""
        return self._unsynced_bytes

    def begin_commit(self) -> tuple[Commit, Callable[[], None]]:
        """Return what to sync, and the producers' snapshot to write beside it when one is due."""
        self.check_open()
        self._unsynced_bytes = 0
        commit = self.log.begin_commit()
        return commit, self.snapshots.beside(
            commit.end_offset, self.leadership, is_compacting=self.is_compacting
        )

    def finish_commit(
        self, commit: Commit, error: StorageFailedError | None, *, seconds: float
    ) -> None:
        """Take the outcome of a sync and tell those who wait for news."""
        self._meter.synced(seconds, is_failed=error is not None)
        if error is not None:
            log.error(LogEvent.PARTITION_READ_ONLY, partition=str(self.name), error=error.message)
        if not self.is_closed:
            self.log.finish_commit(commit, error)
            self.leadership.synced()
            self.wake()

    # Reading.

    def check_offset(self, offset: Offset) -> None:
        """Refuse an offset that is gone or was never written, and any where another node leads."""
        self.leadership.check_led()
        start, end = self.log.start_offset, self.visible_offset
        if self.leadership.replication is not None:
            # Another leader may have shown what this one does not know to be committed yet.
            end = self.log.end_offset
        if not start <= offset <= end:
            raise OffsetOutOfRangeError(
                f"{self.name}: offset {offset} is not between {start} (earliest) and {end} (latest)"
            )

    read = read_piece

    def find_time(self, timestamp_us: int) -> Offset | None:
        """Return the first visible offset at or after a time."""
        self.leadership.check_led()
        found = self.reader.find_time(timestamp_us)
        return found if found is not None and found < self.visible_offset else None

    def watch(self) -> asyncio.Future[None]:
        """Return a future that is done at the next news; ``unwatch`` discards it."""
        return self.waiters.watch()

    def unwatch(self, future: asyncio.Future[None]) -> None:
        """Stop waiting."""
        self.waiters.unwatch(future)

    def wake(self) -> None:
        """Tell those who wait that more may be visible."""
        self.waiters.wake()

    def end_waits(self) -> None:
        """Wake all waiters; later ones do not wait."""
        self.is_waited_for = False
        self.wake()

    def note_trimmed(self) -> None:
        """Forget what was removed from the start of the log."""
        self.snapshots.trim(self.log.start_offset)
        self.queue.trim(self.log.start_offset)
        self.leadership.trimmed()

    def note_cut(self, end_offset: Offset, tx: TxIndex) -> None:
        """Forget everything from an offset on, which was cut off; ``tx`` is what is left."""
        self.ledger = self.snapshots.ledger
        self.queue.truncate(end_offset, tx)
        self.leadership.forget_ends(end_offset)
        self._seen_offset = min(self._seen_offset, end_offset)
        self._unsynced_bytes = 0
        self.leadership.synced()

    def close(self) -> None:
        """Make everything durable and let go of the files."""
        if self.is_closed:
            return
        self.is_closed = True
        self.end_waits()
        self.leadership.fail(ShuttingDownError("the broker is stopping"))
        self.log.close()
        if self.log.failure is None:
            end_offset, is_compacting = self.log.end_offset, self.is_compacting
            self.snapshots.last(end_offset, self.leadership, is_compacting=is_compacting)()

    def abandon(self) -> None:
        """Let go of the files without syncing: the partition is about to be removed."""
        self.is_closed = self._is_removed = True
        self.end_waits()
        self.leadership.fail(TopicNotFoundError(f"topic not found: {self.name.topic}"))
        for segment in self.log.segments:
            segment.close()
