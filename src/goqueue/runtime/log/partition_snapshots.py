"""The snapshots beside a partition's log: its producers, and its index for the queue.

Where a log is replicated, a snapshot waits until everything in it is committed: what lies behind
the high watermark may be cut off, and a snapshot must not know of it then.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Offset
from goqueue.base.units import KiB, MiB
from goqueue.core.producers.ledger import ProducerLedger
from goqueue.core.tx.index import TxIndex
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.leadership import Leadership
from goqueue.runtime.log.partition_state import recover_before
from goqueue.runtime.log.producer_snapshot import (
    drop_producers,
    encode_snapshot,
    write_snapshot,
)
from goqueue.runtime.queue.queue_snapshot import encode_queue
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.storage import queue_blocks
from goqueue.storage.disk import Disk
from goqueue.storage.log_notes import Gap
from goqueue.storage.partition_log import PartitionLog
from goqueue.storage.truncation import Cut

SNAPSHOT_EVERY_BYTES: Final = 16 * MiB
SNAPSHOT_EVERY_FRAMES: Final = 4_096
"""How much of the log may have to be replayed at start for the producers' sake."""

log = get_logger("goqueue.partition")


class PartitionSnapshots:
    """Counts what was appended since the last snapshots, and makes new ones."""

    def __init__(
        self, disk: Disk, directory: str, ledger: ProducerLedger, queue: PartitionVisibility
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.ledger = ledger
        self._queue = queue
        self.bytes_since = 0
        self.frames_since = 0
        self._queue_debt_bytes = 0
        self._queue_bytes = 0
        self._held: tuple[Offset, Callable[[], None]] | None = None
        self.unknown: tuple[Gap, ...] = ()
        """Damage that a start found behind the last snapshots: none is made before it is repaired
        or known to be lost, because it would lack what these frames say."""

    def __repr__(self) -> str:
        return f"<PartitionSnapshots below {self._directory}, {self.frames_since} frames since>"

    def beside(
        self, end_offset: Offset, leadership: Leadership, *, is_compacting: bool
    ) -> Callable[[], None]:
        """Return what writes the snapshots that are due when a sync up to an offset is over."""
        if self.unknown:
            return _nothing
        if self._held is not None:
            return self._committed(leadership)
        if self.bytes_since < SNAPSHOT_EVERY_BYTES and self.frames_since < SNAPSHOT_EVERY_FRAMES:
            return _nothing
        write = self._take(end_offset, is_compacting=is_compacting)
        if leadership.replication is None:
            return write
        self._held = end_offset, write
        return _nothing

    def last(
        self, end_offset: Offset, leadership: Leadership, *, is_compacting: bool
    ) -> Callable[[], None]:
        """Return what writes the snapshots of a log that is closed, as far as it is committed."""
        if self.unknown:
            return _nothing
        if end_offset <= leadership.committed_offset:
            return self._take(end_offset, is_compacting=is_compacting, is_last=True)
        return self._committed(leadership)

    def _committed(self, leadership: Leadership) -> Callable[[], None]:
        if self._held is None or self._held[0] > leadership.committed_offset:
            return _nothing
        (_, write), self._held = self._held, None
        return write

    def _take(
        self, end_offset: Offset, *, is_compacting: bool, is_last: bool = False
    ) -> Callable[[], None]:
        """Return what writes the state as it is now, for any thread."""
        frames, size = self.frames_since, self.bytes_since
        self.bytes_since = self.frames_since = 0
        content = encode_snapshot(self.ledger, end_offset)
        # A large index is written less often than a small one, so that its share stays small.
        self._queue_debt_bytes += max(size, frames * KiB)
        queue_content = None
        # Not while compaction makes holes: one that is written late would not know of them.
        is_due = self._queue_debt_bytes >= self._queue_bytes and not is_compacting
        if is_last or is_due:
            queue_content = encode_queue(self._queue, end_offset)
            self._queue_debt_bytes, self._queue_bytes = 0, len(queue_content)
        return partial(self._write, content, queue_content)

    def _write(self, content: bytes, queue_content: bytes | None) -> None:
        """Write snapshots or leave them: without them only the next start is slower. Any thread."""
        try:
            write_snapshot(self._disk, self._directory, content)
            if queue_content is not None:
                queue_blocks.write_snapshot(self._disk, self._directory, queue_content)
        except (GoQueueError, OSError) as error:
            log.warning(LogEvent.SNAPSHOT_NOT_WRITTEN, partition=self._directory, error=str(error))

    def now_known(self, gap: Gap) -> bool:
        """Take note that damage is repaired, or lost for good; return whether it was unknown."""
        left = tuple(
            one
            for one in self.unknown
            if one.end_offset <= gap.start_offset or gap.end_offset <= one.start_offset
        )
        was_unknown = left != self.unknown
        self.unknown = left
        return was_unknown

    def trim(self, start_offset: Offset) -> None:
        """Take note that everything before an offset was removed, and its damage with it."""
        self.unknown = tuple(gap for gap in self.unknown if gap.end_offset > start_offset)

    def drop_held(self) -> None:
        """Forget snapshots that wait until they are committed: they are out of date."""
        self._held = None

    def cut(self, log_of: PartitionLog, end_offset: Offset, cut: Cut) -> TxIndex:
        """Let nothing here know of frames behind a cut; return the transactions before it.

        Before the log is cut: at a start, a snapshot of an offset behind its end is a sign of loss.
        """
        self.drop_held()
        disk, directory = self._disk, self._directory
        known = range(log_of.start_offset, end_offset + (not cut.drops_rowless))
        drop_producers(disk, directory, known=known)
        queue_blocks.drop_unless(disk, directory, known=known)
        self._queue_bytes = 0
        self.unknown = tuple(gap for gap in self.unknown if gap.end_offset <= end_offset)
        self.ledger, tx = recover_before(disk, directory, log_of, end_offset)
        return tx

    def drop_all(self) -> None:
        """Let no snapshot know of anything, durably: the log begins anew."""
        self.drop_held()
        drop_producers(self._disk, self._directory, known=range(0))
        queue_blocks.drop_unless(self._disk, self._directory, known=range(0))
        self.bytes_since = self.frames_since = self._queue_bytes = 0
        self.ledger = ProducerLedger()
        self.unknown = ()

    def drop_queue(self) -> None:
        """Have the queue index read off the log at the next start. Any thread."""
        queue_blocks.drop_snapshot(self._disk, self._directory)
        self._queue_bytes = 0

    def of_producers(self, log_of: PartitionLog, leadership: Leadership) -> Callable[[], None]:
        """Return what writes the producers' snapshot of what is committed now, for any thread.

        It has a temporary file of its own, because the snapshot beside a sync may be written at
        the same time.
        """
        ledger, end_offset = self.ledger, log_of.end_offset
        if leadership.replication is not None and end_offset > leadership.committed_offset:
            end_offset = leadership.committed_offset
            ledger, _ = recover_before(self._disk, self._directory, log_of, end_offset)
        content = encode_snapshot(ledger, end_offset)
        return partial(write_snapshot, self._disk, self._directory, content, mark=".compaction")


def _nothing() -> None:
    """Write nothing beside a sync."""
