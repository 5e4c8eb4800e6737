"""The snapshots beside a partition's log: its producers, and its index for the queue."""

from collections.abc import Callable
from functools import partial
from typing import Final

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Offset
from goqueue.base.units import KiB, MiB
from goqueue.core.producers.ledger import ProducerLedger
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.producer_snapshot import encode_snapshot, write_snapshot
from goqueue.runtime.queue.queue_snapshot import encode_queue
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.storage import queue_blocks
from goqueue.storage.disk import Disk

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
        self._ledger = ledger
        self._queue = queue
        self.bytes_since = 0
        self.frames_since = 0
        self._queue_debt_bytes = 0
        self._queue_bytes = 0

    def __repr__(self) -> str:
        return f"<PartitionSnapshots below {self._directory}, {self.frames_since} frames since>"

    def take(
        self, end_offset: Offset, *, is_compacting: bool, is_last: bool = False
    ) -> Callable[[], None]:
        """Return what writes the state as it is now, for any thread."""
        frames, size = self.frames_since, self.bytes_since
        self.bytes_since = self.frames_since = 0
        content = encode_snapshot(self._ledger, end_offset)
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

    def drop_queue(self) -> None:
        """Have the queue index read off the log at the next start. Any thread."""
        queue_blocks.drop_snapshot(self._disk, self._directory)
        self._queue_bytes = 0

    def of_producers(self, end_offset: Offset) -> Callable[[], None]:
        """Return what writes the producers' snapshot as it is now, for any thread.

        It has a temporary file of its own, because the snapshot beside a sync may be written at
        the same time.
        """
        content = encode_snapshot(self._ledger, end_offset)
        return partial(write_snapshot, self._disk, self._directory, content, mark=".compaction")
