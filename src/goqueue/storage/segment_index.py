"""The two indexes of a segment and their files.

Entries are written only for bytes that are already synced. So whatever a crash leaves behind, the
last entry points into durable bytes, and recovery scans from there. A sealed segment's last entry
is its end: what is bad before it is damage, not a torn write.
"""

import contextlib
from dataclasses import dataclass
from typing import Final

from goqueue.base.errors import (
    CorruptFrameError,
    DiskFullError,
    GoQueueError,
    OverloadedError,
    StorageFailedError,
)
from goqueue.base.ids import Offset, Position
from goqueue.base.limits import INDEX_ENTRY_BYTES, INDEX_INTERVAL_BYTES
from goqueue.core.log.index import SparseIndex
from goqueue.storage.disk import Disk, write_atomically

INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"


@dataclass(slots=True, kw_only=True)
class Flush:
    """Index entries on their way into the files. Touches nothing else, so any thread may run it."""

    disk: Disk
    stem: str
    entries: bytes
    times: bytes
    entries_written: int = 0
    times_written: int = 0
    error: GoQueueError | OSError | None = None

    def run(self) -> None:
        """Append the entries; an error is only kept, because they can as well come later."""
        if not (self.entries or self.times):
            return
        try:
            self.entries_written = self._append(INDEX_SUFFIX, self.entries)
            self.times_written = self._append(TIME_INDEX_SUFFIX, self.times)
        except (GoQueueError, OSError) as error:
            self.error = error

    def _append(self, suffix: str, raw: bytes) -> int:
        if raw:
            with contextlib.closing(self.disk.open(self.stem + suffix)) as file:
                file.append([raw])
        return len(raw) // INDEX_ENTRY_BYTES


class SegmentIndex:
    """The offset index and the time index of one segment, with entries for the same frames."""

    def __init__(self, disk: Disk, stem: str) -> None:
        self._disk = disk
        self._stem = stem
        self.offsets = SparseIndex()
        self.times = SparseIndex()
        self._flushed_entries = self._flushed_times = 0
        self.is_rewrite_due = False
        """The files are not a beginning of these indexes and have to be replaced."""

    def __repr__(self) -> str:
        return f"<SegmentIndex {self._stem} of {len(self.offsets)} entries>"

    @property
    def indexed_end(self) -> Position:
        """Position of the last entry. All bytes before an entry of the files are durable."""
        last = self.offsets.last()
        return Position(last[1] if last else 0)

    @property
    def last_timestamp_ns(self) -> int:
        """The time of the last entry: no message before its offset is later."""
        last = self.times.last()
        return last[0] if last else 0

    @classmethod
    def read(cls, disk: Disk, stem: str, *, last: int | None = None) -> "SegmentIndex | None":
        """Read both files, or their last entries only; None if they are missing or make no sense.

        A crash may leave more of one than of the other; what both have is good.
        """
        index = cls(disk, stem)
        offsets = _decode(disk, stem + INDEX_SUFFIX, last)
        times = _decode(disk, stem + TIME_INDEX_SUFFIX, last)
        if offsets is None or times is None:
            return None
        index.offsets, index.times = offsets, times
        index._flushed_entries, index._flushed_times = len(offsets), len(times)
        count = offsets.agrees_with(times)
        if count < min(len(offsets), len(times)):
            return None
        index.cut(count)
        return index

    def create(self) -> None:
        """Make the files of a new segment; the caller syncs the directory."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._disk.remove(self._stem + suffix)
            self._disk.open(self._stem + suffix, create=True).close()

    def is_due(self, position: int) -> bool:
        """Return True if a frame at a position gets an entry."""
        positions = self.offsets.values
        return not positions or position - positions[-1] >= INDEX_INTERVAL_BYTES

    def note(
        self, *, offset: Offset, position: int, last_timestamp_ns: int, is_wanted: bool = False
    ) -> None:
        """Add an entry for a frame where one is due, or ``is_wanted`` for another reason."""
        if self.is_due(position) or (is_wanted and position > self.indexed_end):
            self.offsets.add(offset, position)
            self.times.add(last_timestamp_ns, offset)

    def cut(self, count: int) -> None:
        """Keep only the first ``count`` entries."""
        self.offsets.cut(count)
        self.times.cut(count)
        if count < max(self._flushed_entries, self._flushed_times):
            self.is_rewrite_due = True

    def plan_flush(self) -> Flush:
        """Return the entries that are not in the files yet, for ``settle`` to take note of."""
        is_late = self.is_rewrite_due
        has_entries = not is_late and len(self.offsets) > self._flushed_entries
        has_times = not is_late and len(self.times) > self._flushed_times
        return Flush(
            disk=self._disk,
            stem=self._stem,
            entries=self.offsets.encode(self._flushed_entries) if has_entries else b"",
            times=self.times.encode(self._flushed_times) if has_times else b"",
        )

    def settle(self, flush: Flush) -> None:
        """Note what a flush has written."""
        self._flushed_entries += flush.entries_written
        self._flushed_times += flush.times_written

    def save(self) -> None:
        """Replace both files. Waits for the disk."""
        write_atomically(self._disk, self._stem + INDEX_SUFFIX, self.offsets.encode())
        write_atomically(self._disk, self._stem + TIME_INDEX_SUFFIX, self.times.encode())
        self._flushed_entries, self._flushed_times = len(self.offsets), len(self.times)
        self.is_rewrite_due = False

    def save_soon(self) -> None:
        """Replace files that are not good, or leave that for later where the disk refuses."""
        if self.is_rewrite_due:
            with contextlib.suppress(DiskFullError, OverloadedError, StorageFailedError):
                self.save()

    def seal(self) -> None:
        """Make both files complete and durable."""
        if self.is_rewrite_due:
            self.save()
            return
        flush = self.plan_flush()
        flush.run()
        self.settle(flush)
        if flush.error is not None:
            raise flush.error
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            with contextlib.closing(self._disk.open(self._stem + suffix)) as file:
                file.sync()


def _decode(disk: Disk, path: str, last: int | None) -> SparseIndex | None:
    try:
        with contextlib.closing(disk.open(path)) as file:
            size = file.size()
            start = 0 if last is None else max(size - last * INDEX_ENTRY_BYTES, 0)
            return SparseIndex.decode(file.read(Position(start), size - start))
    except (FileNotFoundError, CorruptFrameError):
        return None
