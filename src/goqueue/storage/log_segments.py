"""The segments of one log: opened and mended at a start, found by their offsets, listed.

All but the last segment are sealed: synced, indexed and never written again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from goqueue.base.errors import DiskFullError
from goqueue.base.ids import Offset, Position
from goqueue.core.log.retention import SegmentAge
from goqueue.core.log.scan import find_frame, rows_of
from goqueue.core.log.torn import end_of_damage, is_torn
from goqueue.core.record.frame import FrameHeader
from goqueue.storage.disk import Disk, write_atomically
from goqueue.storage.log_notes import Gap, LogCounters, Recovery
from goqueue.storage.segment import Scan, Segment
from goqueue.storage.swap import CHECKPOINT_NAME, bases_of, mend, read_checkpoint

LOST_SUFFIX: Final = ".lost"
SEALED_OPEN_MAX: Final = 4
"""Sealed segments a log keeps open for its readers."""


class LogSegments:
    """The files of a log. Its directory is there before it is opened."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk, self._directory = disk, directory
        self.counters, self.recovery = LogCounters(), Recovery()
        self._opened: list[Segment] = []
        self.cleaned_offset = Offset(0)
        """Sealed segments from here on have not been compacted yet."""
        self._segments: list[Segment] = []
        self._open()

    def _open(self) -> None:
        disk, directory = self._disk, self._directory
        names = mend(disk, directory)
        if CHECKPOINT_NAME in names:
            self.cleaned_offset = read_checkpoint(disk, directory)
        self._segments = [Segment(disk, directory, base) for base in bases_of(names)]
        if self._segments:
            # A process killed right after it made a segment left its name unsynced.
            disk.sync_directory(directory)
            self._recover()
        else:
            self._add_segment(Offset(0))

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    @property
    def start_offset(self) -> Offset:
        """Offset of the oldest message still there."""
        return self._segments[0].base_offset

    @property
    def end_offset(self) -> Offset:
        """Offset the next message will get."""
        return self._active.next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all log files."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first."""
        return self._segments

    @property
    def directory(self) -> str:
        """Where the files are."""
        return self._directory

    @property
    def sealed(self) -> Sequence[Segment]:
        """The segments that are never written again."""
        return self._segments[:-1]

    @property
    def sealed_bytes(self) -> int:
        """Bytes of the sealed segments."""
        return sum(segment.size for segment in self.sealed)

    @property
    def dirty_bytes(self) -> int:
        """Bytes of the sealed segments that were not compacted yet."""
        new = (one for one in self.sealed if one.base_offset >= self.cleaned_offset)
        return sum(segment.size for segment in new)

    @property
    def is_empty(self) -> bool:
        """Return True if the segment that takes appends holds no message."""
        return self._active.is_empty

    def _add_segment(self, base_offset: Offset) -> None:
        segment = Segment(self._disk, self._directory, base_offset)
        segment.create()
        self._disk.sync_directory(self._directory)
        self._segments.append(segment)
        self.counters.segments_created += 1

    # Finding.

    def segment_of(self, offset: Offset) -> Segment:
        """Return the segment that holds, or would hold, an offset."""
        place = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset)
        segment = self._segments[max(place - 1, 0)]
        if segment is not self._active:
            self._keep_open(segment)
        return segment

    def _keep_open(self, segment: Segment) -> None:
        """Remember which sealed segments were read last, and close the others."""
        if segment in self._opened:
            return
        if len(self._opened) == SEALED_OPEN_MAX:
            self._opened.pop(0).close()
        self._opened.append(segment)

    def end_of(self, segment: Segment) -> Offset:
        """Return the offset behind a segment."""
        place = self._segments.index(segment) + 1
        is_last = place == len(self._segments)
        return self.end_offset if is_last else self._segments[place].base_offset

    def age_of(self, segment: Segment) -> SegmentAge:
        """Return the size and the latest time of a segment without keeping it open."""
        age = segment.age()
        if segment is not self._active and segment not in self._opened:
            segment.close()
        return age

    def mend_index(self, segment: Segment) -> None:
        """Make the index of a segment anew: it led astray."""
        segment.rebuild_index()
        if segment is not self._active:
            segment.index.save_soon()

    def frames_from(
        self, offset: Offset, *, reports_gaps: bool = False
    ) -> Iterator[tuple[FrameHeader, memoryview]]:
        """Yield every good frame at or behind an offset, also those that hold no message."""
        place = bisect_left(self._segments, offset, key=lambda segment: segment.base_offset)
        reached = offset
        for segment in self._segments[max(place - 1, 0) :]:
            for header, frame in segment.frames_past_damage(*segment.entry_before(offset)):
                if reports_gaps and header.offset > reached:
                    self.report_gap(Gap(reached, header.offset))
                reached = max(reached, Offset(header.offset + rows_of(frame, len(frame), header)))
                if header.offset >= offset:
                    yield header, frame
            if segment is not self._active and segment not in self._opened:
                segment.close()

    def report_gap(self, gap: Gap) -> None:
        """Note offsets that cannot be served, together with those next to them."""
        self.recovery.add(gap)

    def holds(self, segment: Segment) -> bool:
        """Return True if a segment is still part of the log."""
        return segment in self._segments

    # Opening.

    def _recover(self) -> None:
        """Make the last segment end with a whole frame."""
        active = self._active
        scan = active.recover()
        self.recovery.index_rebuilds += active.index_rebuilds
        if scan.fault is None:
            active.sync()
        elif scan.position < active.index.indexed_end or not self._drop_torn(active, scan):
            self._keep_damaged(active)
            return
        active.index.save_soon()

    def _drop_torn(self, active: Segment, scan: Scan) -> bool:
        """Cut off writes that a crash left half-done; return whether it was that."""
        tail = active.file.read(scan.position, active.size - scan.position)
        following = find_frame(tail, offset_min=active.next_offset)
        if not is_torn(
            tail, position=scan.position, following=following, has_ended_early=scan.is_cut
        ):
            return False
        if scan.is_cut and following is None:
            self.recovery.torn_bytes = len(tail)
        else:
            # A page never reached the disk, so nothing behind it was ever synced; should it be
            # otherwise after all, the bytes are kept beside the log.
            try:
                self._set_aside(active, tail)
            except DiskFullError:
                return False
        active.cut(size=scan.position, next_offset=active.next_offset)
        return True

    def _keep_damaged(self, active: Segment) -> None:
        """Leave a damaged segment as it is and go on behind it: bad frames are never deleted."""
        offset, position = active.tail()
        for at, span in active.scan_past_damage(offset, position):
            if span.header.offset > offset:
                self.report_gap(Gap(offset, span.header.offset))
            offset, position = span.end_offset, Position(at + span.end - span.start)
        index_end, position_end = active.index.offsets.last() or (0, 0)
        if position_end < active.size:
            # No entry says how far the damaged frames at the end went.
            rest = active.file.read(position, active.size - position)
            index_end = max(index_end, end_of_damage(rest, offset))
        if offset < index_end:
            self.report_gap(Gap(offset, Offset(index_end)))
            offset = Offset(index_end)
        active.next_offset = offset
        active.sync()
        if active.is_empty:
            # Two segments cannot begin at the same offset, and there is no message in this one.
            self._set_aside(active, active.file.read(Position(0), active.size))
            active.cut(size=0, next_offset=offset)
            return
        active.rebuild_index()
        active.mark_end()
        active.index.save_soon()
        self._add_segment(offset)

    def _set_aside(self, active: Segment, tail: bytes) -> None:
        self.recovery.lost_bytes = len(tail)
        write_atomically(self._disk, active.log_path + LOST_SUFFIX, tail)
