"""Checking one segment without touching it: every frame, every index entry, every offset."""

from collections.abc import Iterator
from dataclasses import dataclass

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset, Position
from goqueue.core.log.index import SparseIndex
from goqueue.core.log.scan import Span, find_frame
from goqueue.core.log.torn import is_torn
from goqueue.core.record.batch import batch_fields, decode_batch
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.row import Row
from goqueue.storage.disk import Disk
from goqueue.storage.findings import Report
from goqueue.storage.segment import Segment
from goqueue.storage.segment_index import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from goqueue.storage.swap import CLEANED, LOG_SUFFIX, stem_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which segment is checked, and what surrounds it."""

    directory: str
    base_offset: Offset
    is_active: bool
    beside: frozenset[str] = frozenset()
    """Suffixes of the files that a compaction has not given their names yet."""

    def mark(self, suffix: str) -> str:
        """Return what stands before a suffix."""
        return CLEANED if suffix in self.beside else ""

    def path(self, suffix: str) -> str:
        """Return the name of one of the segment's files."""
        return stem_of(self.directory, self.base_offset) + self.mark(suffix) + suffix


class SegmentCheck:
    """Walks over one segment. Iterate, then ask for ``end_offset``."""

    def __init__(self, disk: Disk, place: Place, report: Report, *, is_deep: bool) -> None:
        self._disk = disk
        self._place = place
        self._report = report
        self._is_deep = is_deep
        self._segment = Segment(
            disk, place.directory, place.base_offset, mark=place.mark(LOG_SUFFIX)
        )
        self._log_path = place.path(LOG_SUFFIX)
        self._offsets = IndexCursor(self._read_index(INDEX_SUFFIX), place.path(INDEX_SUFFIX))
        self._times = TimeCursor(self._read_index(TIME_INDEX_SUFFIX), place.path(TIME_INDEX_SUFFIX))
        self.end_offset = place.base_offset
        self.torn_bytes = 0

    def __iter__(self) -> Iterator[int]:
        """Check everything, yielding how many bytes were checked since the last time."""
        size = self._segment.size
        position = Position(0)
        while position < size:
            scan = self._segment.scan(position)
            for at, span in scan:
                self._check_span(at, span)
                yield span.end - span.start
            if scan.fault is None:
                break
            following = self._skip_fault(scan.position, scan.fault, is_cut=scan.is_cut)
            yield following - scan.position
            position = following
        # A sealed segment's last entry is its end.
        self._offsets.meet(Position(size), self.end_offset)
        self._offsets.finish(self._report, size=size)
        self._times.finish(self._report, is_active=self._place.is_active)
        self._report.segments += 1
        self._segment.close()

    @property
    def is_indexed_to(self) -> int:
        """Return the position of the last index entry: bytes up to it were durable once."""
        return self._offsets.last_position

    def _check_span(self, position: Position, span: Span) -> None:
        offset = span.header.offset
        if offset < self.end_offset:
            self._report.problem(
                self._log_path,
                f"offset {offset} at byte {position} comes after offset {self.end_offset - 1}",
            )
        elif offset > self.end_offset:
            missing = _offsets_text(self.end_offset, offset - self.end_offset)
            self._report.problem(self._log_path, f"{missing} are missing before byte {position}")
        self._offsets.meet(position, offset)
        self._times.meet(offset, span.header.timestamp_ns)
        self._check_content(position, span)
        self.end_offset = max(self.end_offset, span.end_offset)
        self._report.frames += 1
        self._report.messages += 0 if span.header.flags & CONTROL else span.rows
        self._report.bytes_checked += span.end - span.start

    def _check_content(self, position: Position, span: Span) -> None:
        """Look into a frame; its checksum holds, so a fault here was already there when written."""
        if not self._is_deep:
            return
        frame = memoryview(self._segment.file.read(position, span.end - span.start))
        try:
            if not span.header.is_batch:
                Row(span.header, frame)
                return
            batch = decode_batch(span.header, frame)
            batch.validate(full=True)
            rows = batch_fields(span.header, frame).rows
        except (CorruptFrameError, ValueError) as error:
            self._report.problem(
                self._log_path, f"the frame of offset {span.header.offset}: {error}"
            )
            return
        if batch.num_rows != rows:
            self._report.problem(
                self._log_path,
                f"the batch of offset {span.header.offset} holds {batch.num_rows} messages and"
                f" declares {rows}",
            )

    def _skip_fault(
        self, position: Position, fault: CorruptFrameError, *, is_cut: bool
    ) -> Position:
        """Report bytes that are no frame; return where the next good one begins."""
        size = self._segment.size
        rest = self._segment.file.read(position, size - position)
        following = find_frame(rest, offset_min=self.end_offset)
        may_be_torn = self._place.is_active and self.is_indexed_to <= position
        is_half_written = may_be_torn and is_torn(
            rest, position=position, following=following, has_ended_early=is_cut
        )
        if following is None:
            self._offsets.skip(Position(size))
            self._end_badly(position, len(rest), fault, is_torn=is_half_written)
            return Position(size)
        if is_half_written:
            self._offsets.skip(Position(size))
            self._lose_page(position, len(rest))
            return Position(size)
        good = Position(position + following.start)
        self._offsets.skip(good)
        missing = following.header.offset - self.end_offset
        self._report.problem(
            self._log_path,
            f"{good - position} bytes at byte {position} are damaged ({fault});"
            f" {_offsets_text(self.end_offset, missing)} cannot be read",
        )
        self.end_offset = following.header.offset
        return good

    def _lose_page(self, position: Position, size: int) -> None:
        self.torn_bytes = size
        self._report.note(
            self._log_path,
            f"a page behind byte {position} never reached the disk; the broker sets the last {size}"
            " bytes aside, none of which was acknowledged as synced",
        )

    def _end_badly(
        self, position: Position, size: int, fault: CorruptFrameError, *, is_torn: bool
    ) -> None:
        if is_torn:
            self.torn_bytes = size
            self._report.note(
                self._log_path,
                f"the last {size} bytes are half a write that was never acknowledged as synced;"
                " the broker cuts them off",
            )
            return
        self._report.problem(
            self._log_path, f"the last {size} bytes, from byte {position} on, are damaged: {fault}"
        )

    def _read_index(self, suffix: str) -> SparseIndex | None:
        path = self._place.path(suffix)
        report = self._report.note
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            report(path, "is missing; the broker makes it anew from the log")
            return None
        try:
            return SparseIndex.decode(file.read(Position(0), file.size()))
        except CorruptFrameError as error:
            report(path, f"{error}; the broker makes it anew from the log")
            return None
        finally:
            file.close()


def _offsets_text(first: Offset, count: int) -> str:
    return f"{count} messages (offsets {first} to {first + count - 1})"


class IndexCursor:
    """Goes along the offset index while the log goes by."""

    def __init__(self, index: SparseIndex | None, path: str) -> None:
        self._entries = list(index or ())
        self._next = 0
        self._path = path
        self._wrong: list[tuple[int, int]] = []
        self.last_position = self._entries[-1][1] if self._entries else -1

    def meet(self, position: Position, offset: Offset) -> None:
        """Compare the entries up to a frame with it."""
        while self._next < len(self._entries) and self._entries[self._next][1] <= position:
            entry = self._entries[self._next]
            if entry != (offset, position):
                self._wrong.append(entry)
            self._next += 1

    def skip(self, position: Position) -> None:
        """Pass over the entries of damaged bytes."""
        while self._next < len(self._entries) and self._entries[self._next][1] < position:
            self._next += 1

    def finish(self, report: Report, *, size: int) -> None:
        """Report what did not match."""
        self._wrong += self._entries[self._next :]
        if not self._wrong:
            return
        offset, position = self._wrong[0]
        report.note(
            self._path,
            f"{len(self._wrong)} of {len(self._entries)} entries do not match the log of {size}"
            f" bytes; the first says that offset {offset} is at byte {position}; the broker makes"
            " it anew from the log",
        )


class TimeCursor:
    """Goes along the time index while the log goes by.

    An entry (time, offset) promises that no message before the offset is later than the time, and
    the last entry of a sealed segment that no message at all is.
    """

    def __init__(self, index: SparseIndex | None, path: str) -> None:
        self._entries = list(index or ())
        self._has_index = index is not None
        self._next = 0
        self._path = path
        self._latest_ns = 0
        self._wrong: list[tuple[int, int]] = []

    def meet(self, offset: Offset, timestamp_ns: int) -> None:
        """Compare the entries up to a frame with what came before it."""
        while self._next < len(self._entries) and self._entries[self._next][1] <= offset:
            self._judge()
        self._latest_ns = max(self._latest_ns, timestamp_ns)

    def _judge(self) -> None:
        entry = self._entries[self._next]
        if entry[0] < self._latest_ns:
            self._wrong.append(entry)
        self._next += 1

    def finish(self, report: Report, *, is_active: bool) -> None:
        """Report what did not match."""
        while self._next < len(self._entries):
            self._judge()
        last_ns = self._entries[-1][0] if self._entries else 0
        is_short = not is_active and last_ns < self._latest_ns
        if self._has_index and not self._wrong and (last_ns > self._latest_ns or is_short):
            self._wrong.append(self._entries[-1] if self._entries else (0, 0))
        if self._wrong:
            time_ns, offset = self._wrong[0]
            report.note(
                self._path,
                f"{len(self._wrong)} of {len(self._entries)} entries do not match the log;"
                f" the first says {time_ns} ns for offset {offset}; the broker makes it anew from"
                " the log",
            )
