"""The hole: a frame in the place of messages that compaction has removed.

Shape: codec. Its offset is the first that is empty, its value (u64) the first that is not; it has
no key, no headers and no time. So every offset of a log lies in some frame, and a jump from one
frame to the next is still damage.
"""

import struct
from collections.abc import Iterator
from typing import Final

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset
from goqueue.base.limits import BATCH_ROWS_MAX
from goqueue.core.record.frame import HOLE, HOLE_BYTES, FrameHeader, encode_frame, read_header

HOLE_ROWS_MAX: Final = BATCH_ROWS_MAX
"""Most offsets of one hole: no frame holds more, which is how a stranger's frame is told apart."""

_END: Final = struct.Struct(">Q")
assert _END.size == HOLE_BYTES


def encode_holes(start_offset: Offset, end_offset: Offset) -> Iterator[tuple[Offset, int, bytes]]:
    """Yield the frames for empty offsets, each with its first offset and how many it stands for."""
    at = start_offset
    while at < end_offset:
        end = min(at + HOLE_ROWS_MAX, end_offset)
        frame = encode_frame(
            flags=HOLE, offset=at, timestamp_ns=0, value=_END.pack(end), priority=0
        )
        yield at, end - at, frame
        at = Offset(end)


def hole_rows(header: FrameHeader, value: memoryview | bytes) -> int:
    """Return for how many offsets a hole stands."""
    rows = int(_END.unpack(value)[0]) - header.offset
    if not 0 < rows <= HOLE_ROWS_MAX or header.timestamp_ns:
        raise CorruptFrameError(f"a hole at offset {header.offset} stands for {rows} offsets")
    return rows


def empty_offsets(frames: memoryview, *, start_offset: int) -> int:
    """Return how many offsets of checked frames, from one on, are those of holes."""
    count = position = 0
    while position < len(frames):
        header = read_header(frames, position)
        position += header.size
        if header.is_hole:
            end = int(_END.unpack_from(frames, position - _END.size)[0])
            count += max(end - max(header.offset, start_offset), 0)
    return count
