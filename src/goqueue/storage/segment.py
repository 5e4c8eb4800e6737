"""One segment: a log file with its indexes."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset, Position
from goqueue.base.limits import FRAME_BYTES_MAX, FRAME_HEADER_BYTES
from goqueue.base.units import MiB
from goqueue.core.log.index import SparseIndex
from goqueue.core.log.retention import SegmentAge
from goqueue.core.log.scan import Span, Walk, find_frame
from goqueue.core.record.frame import FrameHeader, read_header
from goqueue.storage.disk import Buffer, Disk, File
from goqueue.storage.segment_index import Flush, SegmentIndex
from goqueue.storage.swap import LOG_SUFFIX, SUFFIXES, stem_of

SCAN_CHUNK_BYTES: Final = 1 * MiB
END_ENTRIES: Final = 2
"""The last entry of a sealed segment is its end, the one before it leads to its last frames."""


class Appending(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Frames laid out one behind the other, about to be written."""

    buffers: Sequence[Buffer]
    size: int
    first_offset: Offset
    rows: int
    timestamp_ns: int


class Segment:
    """A run of frames that begins at ``base_offset``."""

    def __init__(self, disk: Disk, directory: str, base_offset: Offset, *, mark: str = "") -> None:
        self._disk = disk
        self._stem = stem_of(directory, base_offset) + mark
        self._file: File | None = None
        self._index: SegmentIndex | None = None
        self._size: int | None = None
        self._last_timestamp_ns: int | None = None
        self.base_offset = base_offset
        self.next_offset = base_offset
        """Offset behind the last message; kept for the segment that takes appends."""
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
        """Bytes in the log file. Asking does not keep the file open."""
        if self._size is None:
            file = self._disk.open(self.log_path)
            self._size = file.size()
            file.close()
        return self._size

    @property
    def is_empty(self) -> bool:
        """Tell whether a segment that takes appends holds no message, frames without any aside."""
        return self.next_offset == self.base_offset

    @property
    def index(self) -> SegmentIndex:
        """The indexes, read (or rebuilt) on first use."""
        if self._index is None:
            self._load()
        assert self._index is not None, "loaded above"
        return self._index

    @property
    def times(self) -> SparseIndex:
        """The time index."""
        return self.index.times

    # Writing.

    def create(self) -> None:
        """Make the files of a new, empty segment; the caller syncs the directory."""
        self._index = SegmentIndex(self._disk, self._stem)
        self._index.create()
        self._file = self._disk.open(self.log_path, create=True)
        self._size = self._last_timestamp_ns = 0

    def append(self, appending: Appending) -> None:
        """Write frames to the page cache; raises with nothing changed."""
        position, index = self.size, self.index
        self.file.append(appending.buffers)
        if index.is_due(position):
            self._note(position, appending.first_offset, appending.timestamp_ns)
        elif appending.timestamp_ns > (self._last_timestamp_ns or 0):
            self._last_timestamp_ns = appending.timestamp_ns
        self._size = position + appending.size
        self.next_offset = Offset(appending.first_offset + appending.rows)

    def note_rows(self, frames: Sequence[bytes], *, timestamp_ns: int) -> None:
        """Take note of row frames of one moment that were written to ``file``."""
        position, offset = self.size, self.next_offset
        for frame in frames:
            self._note(position, offset, timestamp_ns)
            position, offset = position + len(frame), Offset(offset + 1)
        self._size, self.next_offset = position, offset

    def append_stored(self, frames: Buffer, spans: Sequence[Span]) -> None:
        """Write frames that have their offsets already; raises with nothing changed."""
        position = self.size
        self.file.append([frames])
        for span in spans:
            self._note(position + span.start, span.header.offset, span.header.timestamp_ns)
        self._size = position + len(frames)
        self.next_offset = spans[-1].end_offset

    def _note(
        self, position: int, offset: Offset, timestamp_ns: int, *, is_wanted: bool = False
    ) -> None:
        self._last_timestamp_ns = max(self._last_timestamp_ns or 0, timestamp_ns)
        self.index.note(
            offset=offset,
            position=position,
            last_timestamp_ns=self._last_timestamp_ns,
            is_wanted=is_wanted,
        )

    def plan_flush(self) -> Flush:
        """Return the index entries not in the files yet, to be written once the log is synced."""
        return self.index.plan_flush()

    def settle(self, flush: Flush) -> None:
        """Note what a flush has written."""
        self.index.settle(flush)

    def sync(self) -> None:
        """Make the log file durable."""
        self.file.sync()

    def mark_end(self) -> None:
        """Let the last index entry be the end of the segment, all of which is synced."""
        if self.size:
            self._note(self.size, self.next_offset, 0, is_wanted=True)

    def take_back(self, *, size: int, next_offset: Offset) -> None:
        """Forget everything appended behind a place."""
        self._keep_index(size)
        self._size = size
        self.next_offset = next_offset
        self.file.truncate(size)

    def cut(self, *, size: int, next_offset: Offset) -> None:
        """Shorten the log to a frame border, durably."""
        self.take_back(size=size, next_offset=next_offset)
        self.sync()

    def _keep_index(self, size: int) -> None:
        index = self.index
        index.cut(index.offsets.count_below(value=size))

    def remove(self) -> None:
        """Delete the files, the log first: an index without a log is harmless."""
        self.close()
        for suffix in SUFFIXES:
            self._disk.remove(self._stem + suffix)

    def close(self) -> None:
        """Let go of the log file and the indexes; a thread that still reads keeps it open."""
        self._file = None
        self._index = None

    # Reading back what a crash, a bit flip or an earlier version left.

    def age(self) -> SegmentAge:
        """Return what retention wants to know."""
        if self._last_timestamp_ns is None and not self._read_age():
            self._load()
        return SegmentAge(size_bytes=self.size, last_timestamp_ns=self._last_timestamp_ns or 0)

    def _read_age(self) -> bool:
        """Learn the latest time of a sealed segment from its end; tell whether that worked."""
        ends = SegmentIndex.read(self._disk, self._stem, last=END_ENTRIES)
        if ends is None or len(ends.offsets) < END_ENTRIES or ends.indexed_end != self.size:
            return False
        offset, position = ends.offsets[0]
        # An entry with a flipped bit may say too early, so the last frames have their say, too.
        tail = self.scan_past_damage(Offset(offset), Position(position))
        self._last_timestamp_ns = max(
            [ends.last_timestamp_ns, *(span.header.timestamp_ns for _, span in tail)]
        )
        return True

    def entry_for(self, offset: Offset) -> tuple[Offset, Position]:
        """Return the first offset and the position of a frame at or before an offset."""
        entry = self.index.offsets.entry_at_or_before(offset)
        return (Offset(entry[0]), Position(entry[1])) if entry else (self.base_offset, Position(0))

    def whole_bytes(self, position: Position, *, bytes_max: int) -> int:
        """Return how much to read from a frame on, so that it ends with a frame where known.

        As much as ``bytes_max`` has room for, or the first frame where it is larger than that.
        """
        left = self.size - position
        if left <= bytes_max:
            return left
        ends = self.index.offsets.values
        place = self.index.offsets.count_below(value=position + bytes_max + 1)
        if place and ends[place - 1] > position:
            return ends[place - 1] - position
        end = ends[place] if place < len(ends) else self.size
        return min(end - position, FRAME_BYTES_MAX)

    def border(self, *, offset_max: Offset, position_max: int) -> tuple[Offset, Position]:
        """Return the first offset and the position of the last frame with an entry within both."""
        offsets = self.index.offsets
        place = min(
            offsets.count_before(key=offset_max + 1), offsets.count_below(value=position_max + 1)
        )
        if not place:
            return self.base_offset, Position(0)
        return Offset(offsets[place - 1][0]), Position(offsets[place - 1][1])

    def entry_before(self, offset: Offset) -> tuple[Offset, Position]:
        """Return the first offset and the position of a frame before an offset, or the first."""
        offsets = self.index.offsets
        place = offsets.count_before(key=offset) - 1
        if place < 0:
            return self.base_offset, Position(0)
        return Offset(offsets[place][0]), Position(offsets[place][1])

    def _load(self) -> None:
        """Read the indexes of a sealed segment and make them complete."""
        index = self._read_index()
        if index is None:
            self.rebuild_index()
            index = self.index
        else:
            self._index = index
            self._last_timestamp_ns = index.last_timestamp_ns
            self._count_in(*self.tail())
        index.save_soon()

    def _read_index(self) -> SegmentIndex | None:
        """Read the indexes if they fit the log: both begin at its beginning and end in a frame."""
        index = SegmentIndex.read(self._disk, self._stem)
        if index is None or not len(index.offsets):
            return None if self.size else index
        offset, position = index.offsets[-1]
        if index.offsets[0] != (self.base_offset, 0) or position > self.size:
            return None
        if position == self.size:
            return index
        try:
            header = read_header(self.file.read(Position(position), FRAME_HEADER_BYTES))
        except CorruptFrameError:
            # The frame itself is bad; scanning for the truth is the log's business.
            return index
        return index if header.offset == offset else None

    def tail(self) -> tuple[Offset, Position]:
        """Return the last indexed frame: from there on the log has to be looked at."""
        offsets = self.index.offsets
        is_end = len(offsets) > 0 and self.index.indexed_end == self.size
        if len(offsets) <= is_end:
            return self.base_offset, Position(0)
        offset, position = offsets[-2 if is_end else -1]
        return Offset(offset), Position(position)

    def _count_in(self, offset: Offset, position: Position) -> None:
        """Note every good frame from a place on; the first behind damage gets an entry."""
        reached = position
        for at, span in self.scan_past_damage(offset, position):
            is_behind_damage = at > reached
            self._note(at, span.header.offset, span.header.timestamp_ns, is_wanted=is_behind_damage)
            reached = Position(at + span.end - span.start)

    def rebuild_index(self) -> None:
        """Make the indexes anew from the log, in memory; damaged stretches are left out."""
        self.index_rebuilds += 1
        self._begin_index()
        self._count_in(self.base_offset, Position(0))

    def _begin_index(self) -> None:
        self._index = SegmentIndex(self._disk, self._stem)
        self._index.is_rewrite_due = True
        self._last_timestamp_ns = 0

    def recover(self) -> "Scan":
        """Read the tail of the segment that will take appends, up to its end or a bad frame."""
        self._size = self.file.size()
        self._index = self._read_index()
        if self._index is None:
            self.index_rebuilds += 1
            self._begin_index()
        self._last_timestamp_ns = self.index.last_timestamp_ns
        self.next_offset, position = self.tail()
        scan = self.scan(position)
        for at, span in scan:
            self._note(at, span.header.offset, span.header.timestamp_ns)
            self.next_offset = span.end_offset
        return scan

    def scan(self, position: Position) -> "Scan":
        """Walk over the whole frames from a position to the end or the first bad one."""
        return Scan(self, position)

    def scan_past_damage(
        self, offset: Offset, position: Position
    ) -> Iterator[tuple[Position, Span]]:
        """Walk over every good frame from a frame on to the end, whatever lies between."""
        return ((at, span) for at, span, _ in self._walk_on(offset, position))

    def frames_past_damage(
        self, offset: Offset, position: Position
    ) -> Iterator[tuple[FrameHeader, memoryview]]:
        """Yield every good frame from a frame on to the end, whatever lies between."""
        for _, span, chunk in self._walk_on(offset, position):
            yield span.header, chunk[span.start : span.end]

    def _walk_on(
        self, offset: Offset, position: Position
    ) -> Iterator[tuple[Position, Span, memoryview]]:
        while True:
            scan = self.scan(position)
            for at, span in scan:
                yield at, span, scan.chunk
                offset = span.end_offset
            if scan.fault is None:
                return
            rest = self.file.read(scan.position, self.size - scan.position)
            following = find_frame(rest, offset_min=offset)
            if following is None:
                return
            position = Position(scan.position + following.start)


class Scan:
    """Frames of a segment in order, read in chunks; tells afterwards where and why it ended."""

    def __init__(self, segment: Segment, position: Position) -> None:
        self._segment = segment
        self.position = position
        self.fault: CorruptFrameError | None = None
        self.is_cut = False
        """The fault is that the file ends before the frame does."""
        self.chunk = memoryview(b"")
        """What the spans lie in."""

    def __iter__(self) -> Iterator[tuple[Position, Span]]:
        file = self._segment.file
        size = file.size()
        want = SCAN_CHUNK_BYTES
        while self.position < size:
            self.chunk = memoryview(file.read(self.position, want))
            walk = Walk(self.chunk)
            origin = self.position
            for span in walk:
                self.position = Position(origin + span.end)
                yield Position(origin + span.start), span
            if walk.fault is not None:
                self.fault = walk.fault
                return
            if walk.needed and origin + walk.position + walk.needed > size:
                self.fault = CorruptFrameError(f"the last frame of {file.path} is cut")
                self.is_cut = True
                return
            want = max(SCAN_CHUNK_BYTES, walk.needed)
