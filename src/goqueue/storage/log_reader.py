"""Reading a partition log: by offset and by time, with every checksum checked.

An index is a hint. Where it leads to no frame, or behind the one wanted, it is made anew from the
log. A bad frame is skipped by looking for the next good one, and the reader is told of the gap.
"""

from typing import NamedTuple

from goqueue.base.ids import Offset, Position
from goqueue.base.units import NS_PER_US, MiB
from goqueue.core.log.scan import find_frame, take_frames
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import microseconds
from goqueue.core.record.frame import read_header
from goqueue.storage.disk import File
from goqueue.storage.partition_log import Gap, PartitionLog
from goqueue.storage.segment import Segment

TIME_SCAN_BYTES = 1 * MiB


class Location(NamedTuple):
    """Where the frames of an offset begin, or a little before."""

    segment: Segment
    file: File
    position: Position
    size: int


class Piece(NamedTuple):
    """Whole frames as they lie in the log, and where to go on."""

    frames: memoryview
    next_offset: Offset
    gaps: tuple[Gap, ...] = ()


_NOTHING = memoryview(b"")


class LogReader:
    """Answers reads of one log."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def locate(self, offset: Offset, *, bytes_max: int) -> Location:
        """Return where to read for an offset between start and end."""
        log = self._log
        log.counters.lookups += 1
        segment = log.segment_of(offset)
        position = segment.position_of(offset)
        return Location(segment, segment.file, position, min(bytes_max, segment.size - position))

    def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Piece:
        """Return frames from an offset on, waiting for the disk where needed."""
        location = self.locate(offset, bytes_max=bytes_max)
        chunk = location.file.read(location.position, location.size)
        return self.pick(location, chunk, offset, end_offset=end_offset, bytes_max=bytes_max)

    def pick(
        self,
        location: Location,
        chunk: bytes,
        offset: Offset,
        *,
        end_offset: Offset,
        bytes_max: int,
    ) -> Piece:
        """Return the frames of a chunk that was read at a location."""
        taken = take_frames(chunk, from_offset=offset, end_offset=end_offset, bytes_max=bytes_max)
        is_lost = (
            taken.fault is not None if taken.first_offset is None else (taken.first_offset > offset)
        )
        if is_lost and location.position > 0:
            location.segment.rebuild_index()
            again = self.locate(offset, bytes_max=bytes_max)
            if again.position != location.position:
                return self.read(offset, end_offset=end_offset, bytes_max=bytes_max)
        if taken.end > taken.start:
            self._log.counters.bytes_read += taken.end - taken.start
            return Piece(memoryview(chunk)[taken.start : taken.end], taken.next_offset)
        if taken.fault is None and taken.needed:
            reach = taken.start + taken.needed
            if len(chunk) < reach <= location.segment.size - location.position:
                whole = location.file.read(location.position, reach)
                return self.pick(
                    location, whole, offset, end_offset=end_offset, bytes_max=bytes_max
                )
        return self._behind(location, taken.start, offset, end_offset)

    def _behind(self, location: Location, at: int, offset: Offset, end_offset: Offset) -> Piece:
        """Return no frames, but where the next good one is; a bad stretch before it is a gap."""
        segment = location.segment
        begin = Position(location.position + at)
        if begin >= segment.size:
            # Nothing bad here: the segment ends, and the next begins at a later offset.
            return Piece(_NOTHING, min(self._log.end_of(segment), end_offset))
        rest = segment.file.read(begin, segment.size - begin)
        span = find_frame(rest, position=0, offset_min=offset)
        good = self._log.end_of(segment) if span is None else span.header.offset
        gap = Gap(offset, Offset(min(good, end_offset)))
        if gap.end_offset <= gap.start_offset:
            return Piece(_NOTHING, offset)
        self._log.report_gap(gap)
        return Piece(_NOTHING, gap.end_offset, (gap,))

    def find_time(self, timestamp_us: int) -> Offset | None:
        """Return the first offset whose message is at or after a time; None if there is none."""
        wanted_ns = timestamp_us * NS_PER_US
        for segment in self._log.segments:
            if segment.size and segment.age().last_timestamp_ns >= wanted_ns:
                found = self._find_in(segment, timestamp_us)
                if found is not None:
                    return found
        return None

    def _find_in(self, segment: Segment, timestamp_us: int) -> Offset | None:
        begin = segment.times.before(timestamp_us * NS_PER_US)
        offset = segment.base_offset if begin is None else Offset(begin)
        end_offset = self._log.end_of(segment)
        while offset < end_offset:
            piece = self.read(offset, end_offset=end_offset, bytes_max=TIME_SCAN_BYTES)
            found = first_at_or_after(piece.frames, timestamp_us)
            if found is not None:
                return found
            if piece.next_offset <= offset:
                break
            offset = piece.next_offset
        return None


def first_at_or_after(frames: memoryview, timestamp_us: int) -> Offset | None:
    """Return the first offset in checked frames whose message is at or after a time."""
    position = 0
    while position < len(frames):
        header = read_header(frames, position)
        end = position + header.size
        if header.timestamp_ns >= timestamp_us * NS_PER_US:
            if not header.is_batch:
                return header.offset
            times = microseconds(decode_batch(header, frames[position:end]).column("timestamp"))
            row = next(
                row for row, time in enumerate(times) if time is not None and time >= timestamp_us
            )
            return Offset(header.offset + row)
        position = end
    return None
