"""One segment: a log file with its offset index and its time index.

Index entries are written only for bytes that are already synced. So whatever a crash leaves behind,
the last index entry points into durable bytes, and recovery scans from there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset, Position
from goqueue.base.limits import (
    FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES,
    INDEX_ENTRY_BYTES,
    INDEX_INTERVAL_BYTES,
)
from goqueue.base.units import MiB
from goqueue.core.log.index import SparseIndex
from goqueue.core.log.retention import SegmentAge
from goqueue.core.log.scan import Span, Walk
from goqueue.core.record.frame import read_header
from goqueue.storage.disk import Buffer, Disk, File

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
SCAN_CHUNK_BYTES: Final = 1 * MiB
READ_PER_ENTRY_MAX: Final = INDEX_INTERVAL_BYTES + FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Appending:
    """Frames laid out one behind the other, about to be written."""

    buffers: Sequence[Buffer]
    size: int
    first_offset: Offset
    rows: int
    timestamp_ns: int


class Segment:
    """A run of frames that begins at ``base_offset``."""

    def __init__(self, disk: Disk, directory: str, base_offset: Offset) -> None:
        self._disk = disk
        self._stem = f"{directory}/{base_offset:020d}"
        self._file: File | None = None
        self._index: SparseIndex | None = None
        self._times: SparseIndex | None = None
        self._size: int | None = None
        self._flushed_entries = 0
        self._flushed_times = 0
        self._indexed_end = 0
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.last_timestamp_ns = 0
        self.index_rebuilds = 0

    def __repr__(self) -> str:
        return f"<Segment {self._stem} {self.base_offset}..{self.next_offset}>"

    @property
    def log_path(self) -> str:
        """Name of the log file."""
        return self._stem + LOG_SUFFIX

    @property
    def file(self) -> File:
        """The log file, opened on first use."""
        if self._file is None:
            self._file = self._disk.open(self.log_path)
        return self._file

    @property
    def size(self) -> int:
        """Bytes in the log file."""
        if self._size is None:
            self._size = self.file.size()
        return self._size

    @property
    def index(self) -> SparseIndex:
        """The offset index, read (or rebuilt) on first use."""
        self._load()
        assert self._index is not None, "loaded above"
        return self._index

    @property
    def times(self) -> SparseIndex:
        """The time index, read (or rebuilt) on first use."""
        self._load()
        assert self._times is not None, "loaded above"
        return self._times

    def create(self) -> None:
        """Make the files of a new, empty segment; the caller syncs the directory."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._disk.remove(self._stem + suffix)
        self._file = self._disk.open(self.log_path, create=True)
        self._size = 0
        self._index, self._times = SparseIndex(), SparseIndex()
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._disk.open(self._stem + suffix, create=True).close()

    def append(self, appending: Appending) -> None:
        """Write frames to the page cache; raises with nothing changed."""
        position = self.size
        self.file.append(appending.buffers)
        self._note(
            position=position,
            size=appending.size,
            offset=appending.first_offset,
            timestamp_ns=appending.timestamp_ns,
        )
        self.next_offset = Offset(appending.first_offset + appending.rows)

    def _note(self, *, position: int, size: int, offset: Offset, timestamp_ns: int) -> None:
        """Count a frame in, with index entries where one is due."""
        index, times = self.index, self.times
        self.last_timestamp_ns = max(self.last_timestamp_ns, timestamp_ns)
        if not len(index) or position - self._indexed_end >= INDEX_INTERVAL_BYTES:
            index.add(offset, position)
            times.add(self.last_timestamp_ns, offset)
            self._indexed_end = position
        self._size = position + size

    def new_entries(self, *, synced_size: int) -> tuple[bytes, bytes]:
        """Return the index bytes not yet in the index files that speak of synced bytes only."""
        assert synced_size == self.size, "entries are flushed for a whole prefix"
        if self._flushed_entries >= len(self.index):
            return b"", b""
        return self.index.encode(self._flushed_entries), self.times.encode(self._flushed_times)

    def entries_flushed(self, entries: bytes, times: bytes) -> None:
        """Note that these index bytes are in the files."""
        self._flushed_entries += len(entries) // INDEX_ENTRY_BYTES
        self._flushed_times += len(times) // INDEX_ENTRY_BYTES

    def write_entries(self, entries: bytes, times: bytes) -> None:
        """Append bytes to the index files. Touches no state, so any thread may do it."""
        for suffix, raw in ((INDEX_SUFFIX, entries), (TIME_INDEX_SUFFIX, times)):
            if raw:
                file = self._disk.open(self._stem + suffix, create=True)
                try:
                    file.append([raw])
                finally:
                    file.close()

    def seal(self) -> None:
        """Make everything durable and close the books: nothing is appended any more."""
        self.file.sync()
        times = self.times
        last = times.last()
        if last is not None and last[0] < self.last_timestamp_ns:
            times.add(self.last_timestamp_ns, max(last[1], self.next_offset - 1))
        entries = self.index.encode(self._flushed_entries)
        time_entries = times.encode(self._flushed_times)
        self.write_entries(entries, time_entries)
        self.entries_flushed(entries, time_entries)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            file = self._disk.open(self._stem + suffix, create=True)
            file.sync()
            file.close()

    def age(self) -> SegmentAge:
        """Return what retention wants to know."""
        self._load()
        return SegmentAge(size_bytes=self.size, last_timestamp_ns=self.last_timestamp_ns)

    def position_of(self, offset: Offset) -> Position:
        """Return a position at or before the frame that holds an offset."""
        return Position(self.index.at_or_before(offset) or 0)

    def remove(self) -> None:
        """Delete the files, the log first: an index without a log is harmless."""
        self.close()
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._disk.remove(self._stem + suffix)

    def close(self) -> None:
        """Let go of the log file and the indexes; a thread that still reads keeps it open."""
        self._file = None
        self._index = self._times = None

    # Reading back what a crash, a bit flip or an earlier version left.

    def _load(self) -> None:
        if self._index is not None and self._times is not None:
            return
        index, times = self._read_index(INDEX_SUFFIX), self._read_index(TIME_INDEX_SUFFIX)
        if index is None or times is None or not self._is_plausible(index, times):
            self.rebuild_index()
            return
        self._index, self._times = index, times
        self._flushed_entries, self._flushed_times = len(index), len(times)
        last_time, last_entry = times.last(), index.last()
        self.last_timestamp_ns = last_time[0] if last_time else 0
        self._indexed_end = last_entry[1] if last_entry else 0

    def _read_index(self, suffix: str) -> SparseIndex | None:
        try:
            file = self._disk.open(self._stem + suffix)
        except FileNotFoundError:
            return None
        try:
            return SparseIndex.decode(file.read(Position(0), file.size()))
        except CorruptFrameError:
            return None
        finally:
            file.close()

    def _is_plausible(self, index: SparseIndex, times: SparseIndex) -> bool:
        """Check an index against the log: it begins at the beginning and its ends are frames."""
        if len(index) == 0 or len(times) == 0:
            return self.size == 0
        first, last = next(iter(index)), index.last()
        last_time = times.last()
        assert last is not None, "not empty"
        assert last_time is not None, "not empty"
        if first != (self.base_offset, 0) or next(iter(times))[1] != self.base_offset:
            return False
        if last_time[1] < last[0] or last[1] + FRAME_HEADER_BYTES > self.size:
            return False
        try:
            header = read_header(self.file.read(Position(last[1]), FRAME_HEADER_BYTES))
        except CorruptFrameError:
            # The frame itself is bad; scanning for the truth is the log's business.
            return True
        return header.offset == last[0]

    def rebuild_index(self) -> None:
        """Make both indexes anew from the log and write them."""
        self.index_rebuilds += 1
        self._index, self._times = SparseIndex(), SparseIndex()
        self._flushed_entries = self._flushed_times = 0
        self._indexed_end = 0
        self.last_timestamp_ns = 0
        size = self.size
        for position, span in self.scan(Position(0)):
            self._note(
                position=position,
                size=span.end - span.start,
                offset=span.header.offset,
                timestamp_ns=span.header.timestamp_ns,
            )
        self._size = size
        self.file.sync()
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._disk.remove(self._stem + suffix)
        self._disk.sync_directory(self._stem.rpartition("/")[0])
        entries, times = self._index.encode(), self._times.encode()
        self.write_entries(entries, times)
        self.entries_flushed(entries, times)

    def scan(self, position: Position) -> "Scan":
        """Walk over the whole frames from a position to the end or the first bad one."""
        return Scan(self, position)

    def recover_tail(self) -> "Scan":
        """Read the tail from the last index entry on, counting its frames in."""
        last = self.index.last()
        scan = self.scan(Position(last[1] if last else 0))
        end = 0
        self.next_offset = Offset(last[0]) if last else self.base_offset
        for position, span in scan:
            self._note(
                position=position,
                size=span.end - span.start,
                offset=span.header.offset,
                timestamp_ns=span.header.timestamp_ns,
            )
            end = position + span.end - span.start
            self.next_offset = span.end_offset
        self._size = max(end, scan.position)
        return scan

    def cut(self, size: int) -> None:
        """Shorten the log to ``size`` bytes (a frame border), durably, with both indexes."""
        self.file.truncate(size)
        self.file.sync()
        self._size = size
        self.rebuild_index()


class Scan:
    """Frames of a segment in order, read in chunks; tells afterwards where and why it ended."""

    def __init__(self, segment: Segment, position: Position) -> None:
        self._segment = segment
        self.position = position
        self.fault: CorruptFrameError | None = None

    def __iter__(self) -> Iterator[tuple[Position, Span]]:
        file = self._segment.file
        size = file.size()
        want = SCAN_CHUNK_BYTES
        while self.position < size:
            chunk = file.read(self.position, want)
            walk = Walk(chunk)
            origin = self.position
            for span in walk:
                self.position = Position(origin + span.end)
                yield Position(origin + span.start), span
            if walk.fault is not None:
                self.fault = walk.fault
                return
            if walk.needed and origin + walk.position + walk.needed > size:
                self.fault = CorruptFrameError(f"the last frame of {file.path} is cut")
                return
            want = max(SCAN_CHUNK_BYTES, walk.needed)
