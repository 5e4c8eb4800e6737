"""Walking over frames in bytes read from a segment.

Shape: codec. Nothing is believed before its checksum holds.
"""

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset
from goqueue.base.limits import BATCH_ROWS_MAX, FRAME_HEADER_BYTES
from goqueue.core.record.batch import BATCH_OUTLINE, FIELDS, LAYOUT
from goqueue.core.record.frame import (
    BATCH,
    BATCH_KEY_BYTES,
    CHECKED_FROM,
    COMPRESSED,
    CONTROL,
    CONTROL_BYTES,
    HAS_HEADERS,
    MAGIC,
    OUTLINE,
    TX_COMMIT,
    VERSION,
    FrameHeader,
    read_header,
)
from goqueue.core.record.headers import decode_headers
from goqueue.core.record.hole import hole_rows
from goqueue.core.record.marks import TELLING, TOLD, check_flags, do_flags_fit

SECTOR_BYTES: Final = 512
_START: Final = MAGIC + bytes([VERSION])
_BATCH_FLAGS: Final = BATCH | HAS_HEADERS


class Span(NamedTuple):
    """A whole, checked frame inside a chunk."""

    start: int
    end: int
    header: FrameHeader
    rows: int

    @property
    def end_offset(self) -> Offset:
        """Return the offset behind the frame's last message."""
        return Offset(self.header.offset + self.rows)


class Walk:
    """Iterate over the whole frames of a chunk; afterwards tell why the walk ended.

    ``position`` is where it stopped; ``needed`` the size of a frame that is cut by the end of the
    chunk (0 if the chunk ends between frames); ``fault`` the error if a frame there is bad.
    """

    __slots__ = ("_chunk", "fault", "needed", "position")

    def __init__(self, chunk: bytes | memoryview, position: int = 0) -> None:
        self._chunk = memoryview(chunk)
        self.position = position
        self.needed = 0
        self.fault: CorruptFrameError | None = None

    def __iter__(self) -> Iterator[Span]:
        chunk = self._chunk
        size = len(chunk)
        while size - self.position >= FRAME_HEADER_BYTES:
            start = self.position
            try:
                header = read_header(chunk, start)
            except CorruptFrameError as error:
                self.fault = error
                return
            end = start + header.size
            if end > size:
                self.needed = header.size
                return
            if crc32c(chunk[start + CHECKED_FROM : end]) != header.crc:
                self.fault = CorruptFrameError(
                    f"checksum of the frame at offset {header.offset} does not match"
                )
                return
            try:
                span = Span(start, end, header, rows_of(chunk, end, header))
            except CorruptFrameError as error:
                self.fault = error
                return
            yield span
            self.position = end
        if self.position < size:
            self.needed = FRAME_HEADER_BYTES

    def outlines(self) -> Iterator[tuple[int, int, int]]:
        """Yield of every frame where it ends, its first offset and the offset behind it.

        Whoever needs no more gets on twice as fast. What the checksum covers is as it was written,
        so of the frames a log is full of only the flags, which it leaves out, are looked at.
        """
        chunk, position = self._chunk, self.position
        size, outline_of = len(chunk), OUTLINE.unpack_from
        while size - position >= FRAME_HEADER_BYTES:
            start, flags, crc, offset, priority, key, value, headers = outline_of(chunk, position)
            end = position + FRAME_HEADER_BYTES + key + value + headers
            rows = 1
            if end > size or start != _START:
                break
            if flags & ~COMPRESSED == _BATCH_FLAGS and headers >= FIELDS.size:
                layout, codec, rows = BATCH_OUTLINE.unpack_from(chunk, end - headers)
                is_common = layout == LAYOUT and bool(codec) == (flags & COMPRESSED)
                is_common = is_common and key == BATCH_KEY_BYTES and rows <= BATCH_ROWS_MAX
            else:
                kind = flags & ~(HAS_HEADERS | TX_COMMIT)
                is_common = kind == CONTROL and value == CONTROL_BYTES + key and not priority
                is_common = is_common or not flags & ~HAS_HEADERS
                block = end - headers
                # Headers may turn out to be the fields of a batch, or to know of other flags.
                has_headers = flags & HAS_HEADERS and headers and chunk[block] != LAYOUT
                is_common = is_common and (has_headers or not (flags & HAS_HEADERS or headers))
                is_sure = not headers or (
                    value and headers > TELLING and chunk[block + TELLING] != TOLD
                )
                if kind or not is_sure:
                    is_common = is_common and do_flags_fit(flags, value, chunk[block:end])
            if not is_common or crc32c(chunk[position + CHECKED_FROM : end]) != crc:
                break
            yield end, offset, offset + rows
            position = self.position = end
        for span in self:
            yield span.end, span.header.offset, span.end_offset


def rows_of(chunk: memoryview, end: int, header: FrameHeader) -> int:
    """Return how many offsets a checked frame stands for: its messages, or those of a hole.

    Flags are not covered by the checksum, so a batch is believed only if its fields look like one,
    and a row only if they do not.
    """
    if header.is_hole:
        return hole_rows(header, chunk[end - header.value_size : end])
    if not header.flags & BATCH:
        block = chunk[end - header.headers_size : end]
        check_flags(header.flags, header.value_size, block)
        if block and block[0] == LAYOUT:
            decode_headers(block)
        return 1
    if header.headers_size < FIELDS.size:
        raise CorruptFrameError("a batch has no fields")
    layout, _, codec, _, rows, *_ = FIELDS.unpack_from(chunk, end - header.headers_size)
    if layout != LAYOUT or bool(codec) != bool(header.flags & COMPRESSED):
        raise CorruptFrameError("the fields of a batch do not fit its flags")
    if rows > BATCH_ROWS_MAX:
        raise CorruptFrameError(f"a batch of {rows} messages; no batch is so large")
    return int(rows)


class Taken(NamedTuple):
    """The part of a chunk that answers a read: bytes from start to end, whole frames only.

    ``ahead_offset`` is that of the first frame not wholly before the range, ``walked_offset`` lies
    behind the last frame looked at; ``needed`` and ``fault`` speak of where the walk stopped.
    """

    start: int
    end: int
    next_offset: Offset
    ahead_offset: Offset | None
    walked_offset: Offset | None
    needed: int
    fault: CorruptFrameError | None


def take_frames(
    chunk: bytes | memoryview,
    *,
    from_offset: Offset,
    end_offset: Offset,
    bytes_max: int,
    is_copy: bool = False,
) -> Taken:
    """Pick the frames that hold messages of the half-open range, ``bytes_max`` of them at most.

    At least one frame is taken whatever its size. With ``is_copy`` frames without messages that
    lie right at the start are taken with what follows them.
    """
    walk = Walk(chunk)
    start = end = 0
    next_offset = from_offset
    ahead_offset: Offset | None = None
    walked_offset: Offset | None = None
    for frame_end, first, behind in walk.outlines():
        walked_offset = Offset(behind)
        if behind <= from_offset and not (is_copy and first == from_offset):
            start = end = frame_end
            continue
        if ahead_offset is None:
            ahead_offset = Offset(first)
        if first >= end_offset or (next_offset > from_offset and frame_end - start > bytes_max):
            break
        end = frame_end
        next_offset = Offset(behind)
    needed = walk.needed
    if needed and next_offset == from_offset:
        # What lies before the frame that is cut is to be read with it.
        needed += walk.position - start
    return Taken(start, end, next_offset, ahead_offset, walked_offset, needed, walk.fault)


def find_frame(chunk: bytes | memoryview, *, offset_min: Offset) -> Span | None:
    """Find the first whole, checked frame behind the bad one a chunk begins with.

    Where the bad frame says it ends is tried first, then every byte. A message may itself contain
    frames, so one with an offset that the lost bytes cannot explain is not believed.
    """
    raw = bytes(chunk)
    for position in _places(raw):
        for span in Walk(raw, position):
            lost_rows_max = BATCH_ROWS_MAX * (1 + position // FRAME_HEADER_BYTES)
            if offset_min <= span.header.offset <= offset_min + lost_rows_max:
                return span
            break
    return None


def _places(raw: bytes) -> Iterator[int]:
    """Yield where a frame may begin, the likeliest place first."""
    with contextlib.suppress(CorruptFrameError):
        yield read_header(raw).size
    position = 0
    while (position := raw.find(MAGIC, position + 1)) >= 0:
        yield position


def has_lost_sector(chunk: bytes | memoryview, *, start: int, end: int, origin: int) -> bool:
    """Return True if a device sector between two places reads as zeros: a page never written.

    ``start`` is where a frame should begin: zeros from there to the end of its sector count, too.
    ``origin`` is the position of the chunk in its file; sectors are aligned in the file.
    """
    first = -(-(origin + start) // SECTOR_BYTES) * SECTOR_BYTES - origin
    if start < first <= end and not any(chunk[start:first]):
        return True
    return any(
        not any(chunk[at : at + SECTOR_BYTES])
        for at in range(first, end - SECTOR_BYTES + 1, SECTOR_BYTES)
    )
