"""Reading a partition log: by offset and by time, with every checksum checked.

An index is a hint. Where it leads to no frame, or behind the one wanted, it is made anew from the
log. A bad frame is skipped by looking for the next good one, and the reader is told of the gap.
"""

from typing import NamedTuple

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset, Position
from goqueue.base.limits import FRAME_HEADER_BYTES
from goqueue.base.units import NS_PER_US, US_PER_MS, MiB
from goqueue.core.log.scan import Taken, Walk, find_frame, take_frames
from goqueue.core.record.batch import batch_fields, decode_batch
from goqueue.core.record.columns import microseconds
from goqueue.core.record.frame import CONTROL, read_header
from goqueue.storage.disk import File
from goqueue.storage.log_notes import Gap
from goqueue.storage.partition_log import PartitionLog
from goqueue.storage.segment import Segment

TIME_SCAN_BYTES = 1 * MiB


class Location(NamedTuple):
    """A frame at or before the one wanted, and how much to read there."""

    segment: Segment
    file: File
    offset: Offset
    position: Position
    size: int


class Piece(NamedTuple):
    """Whole frames as they lie in the log, and where to go on."""

    frames: memoryview
    next_offset: Offset
    gaps: tuple[Gap, ...] = ()


class Extent(NamedTuple):
    """Whole frames in a file, for who reads it there and checks them.

    They begin at or before the offset that was asked for. The file stays open with this.
    """

    file: File
    position: Position
    size: int
    first_offset: Offset
    next_offset: Offset


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
        first, position = segment.entry_for(offset)
        size = segment.whole_bytes(position, bytes_max=bytes_max)
        return Location(segment, segment.file, first, position, size)

    def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Piece:
        """Return frames from an offset on, waiting for the disk where needed."""
        location = self.locate(offset, bytes_max=bytes_max)
        chunk = location.file.read(location.position, location.size)
        return self.pick(location, chunk, offset, end_offset=end_offset, bytes_max=bytes_max)

    def extent(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Extent:
        """Return where frames from an offset on lie, as far as the index knows their borders."""
        log = self._log
        log.counters.lookups += 1
        segment = log.segment_of(offset)
        first, position = segment.entry_for(offset)
        end, stop = log.end_of(segment), Position(segment.size)
        if end > end_offset or stop - position > bytes_max:
            end, stop = segment.border(offset_max=end_offset, position_max=position + bytes_max)
        log.counters.bytes_read += stop - position
        return Extent(segment.file, position, stop - position, first, end)

    def pick(
        self,
        location: Location,
        chunk: bytes | memoryview,
        offset: Offset,
        *,
        end_offset: Offset,
        bytes_max: int,
        is_copy: bool = False,
    ) -> Piece:
        """Return the frames of a chunk that was read at a location, or where the next ones are.

        With ``is_copy`` those without messages right at the offset are among them.
        """
        if offset >= end_offset:
            return Piece(memoryview(b""), offset)
        if self._is_astray(location, chunk, offset):
            self._log.mend_index(location.segment)
            location = self.locate(offset, bytes_max=bytes_max)
            chunk = location.file.read(location.position, location.size)
        while True:
            taken = take_frames(
                chunk,
                from_offset=offset,
                end_offset=end_offset,
                bytes_max=bytes_max,
                is_copy=is_copy,
            )
            if taken.ahead_offset is not None and taken.ahead_offset > offset:
                return self._gap(offset, min(taken.ahead_offset, end_offset))
            if taken.next_offset > offset:
                self._log.counters.bytes_read += taken.end - taken.start
                return Piece(memoryview(chunk)[taken.start : taken.end], taken.next_offset)
            ahead = self._go_on(location, taken)
            if ahead is None:
                return self._gap(offset, min(self._log.end_of(location.segment), end_offset))
            location = ahead
            chunk = location.file.read(location.position, max(bytes_max, location.size))

    @staticmethod
    def _is_astray(location: Location, chunk: bytes | memoryview, offset: Offset) -> bool:
        """Return True if the index led to no frame, or behind the one wanted."""
        if location.position == 0:
            return False
        try:
            return read_header(chunk).offset > offset if chunk else False
        except CorruptFrameError:
            return len(chunk) >= FRAME_HEADER_BYTES

    def _go_on(self, location: Location, taken: Taken) -> Location | None:
        """Return where to look when nothing was taken; None if there is no more in the segment.

        Either the file is to be read further, or a bad frame is in the way.
        """
        segment = location.segment
        reached = location.offset if taken.walked_offset is None else taken.walked_offset
        begin = Position(location.position + taken.start)
        left = segment.size - begin
        if taken.fault is None and 0 < left >= taken.needed:
            return location._replace(offset=reached, position=begin, size=taken.needed)
        rest = location.file.read(begin, left)
        following = find_frame(rest, offset_min=reached)
        if following is None or following.header.offset >= self._log.end_of(segment):
            return None
        return location._replace(
            offset=following.header.offset,
            position=Position(begin + following.start),
            size=following.end - following.start,
        )

    def _gap(self, offset: Offset, end_offset: Offset) -> Piece:
        gap = Gap(offset, end_offset)
        self._log.report_gap(gap)
        return Piece(_NOTHING, end_offset, (gap,))

    def find_time(self, timestamp_us: int) -> Offset | None:
        """Return the first offset whose message is at or after a time; None if there is none."""
        wanted_ns = timestamp_us * NS_PER_US
        for segment in self._log.segments:
            if segment.size and self._log.age_of(segment).last_timestamp_ns >= wanted_ns:
                found = self._find_in(segment, timestamp_us)
                if found is not None:
                    return found
        return None

    def find_recent(self, timestamp_us: int) -> Offset | None:
        """Return an offset before which no message of the newest segments is at or after a time.

        Looks back from the end, so it costs no more on a long log. Where batches say when they were
        appended, that counts, and the first segment that began earlier is the last to look at. Else
        a segment in which every message is older ends the search.
        """
        recent: Segment | None = None
        for segment in reversed(self._log.segments):
            appended_ms = self._first_append(segment)
            if appended_ms and appended_ms * US_PER_MS < timestamp_us:
                return segment.base_offset
            age = self._log.age_of(segment)
            is_old = age.size_bytes and age.last_timestamp_ns < timestamp_us * NS_PER_US
            if is_old and not appended_ms:
                return None if recent is None else recent.base_offset
            recent = segment
        return None if recent is None else recent.base_offset

    def _first_append(self, segment: Segment) -> int:
        """Return when the first batch of a segment that says so was appended; 0 if none does."""
        end_offset = self._log.end_of(segment)
        offset = segment.base_offset
        while offset < end_offset:
            piece = self.read(offset, end_offset=end_offset, bytes_max=TIME_SCAN_BYTES)
            for span in Walk(piece.frames):
                if span.header.is_batch:
                    frame = piece.frames[span.start : span.end]
                    if appended_ms := batch_fields(span.header, frame).appended_ms:
                        return appended_ms
            if piece.next_offset <= offset:
                break
            offset = piece.next_offset
        return 0

    def _find_in(self, segment: Segment, timestamp_us: int) -> Offset | None:
        times = segment.times
        # One entry earlier than needed: a flipped bit in an entry then costs time, not messages.
        place = times.count_before(key=timestamp_us * NS_PER_US) - 2
        offset = Offset(times[place][1]) if place >= 0 else segment.base_offset
        end_offset = self._log.end_of(segment)
        while offset < end_offset:
            piece = self.read(offset, end_offset=end_offset, bytes_max=TIME_SCAN_BYTES)
            found = first_at_or_after(piece.frames, timestamp_us)
            if found is not None:
                return found
            offset = piece.next_offset
        return None


def first_at_or_after(frames: memoryview, timestamp_us: int) -> Offset | None:
    """Return the first offset in checked frames whose message is at or after a time."""
    position = 0
    while position < len(frames):
        header = read_header(frames, position)
        end = position + header.size
        if header.timestamp_ns >= timestamp_us * NS_PER_US and not header.flags & CONTROL:
            if not header.is_batch:
                return header.offset
            times = microseconds(decode_batch(header, frames[position:end]).column("timestamp"))
            for row, time_us in enumerate(times):
                if time_us is not None and time_us >= timestamp_us:
                    return Offset(header.offset + row)
        position = end
    return None
