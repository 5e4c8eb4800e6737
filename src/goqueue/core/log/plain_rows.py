"""Keys and values of plain rows, many at a time: how a start reads the state of machines.

Shape: codec. Takes the rows that follow one another without a gap, each with its checksum, and
holes between them; it stops at whatever else there is, which is for those who look more closely.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_HEADER_BYTES
from goqueue.core.record.frame import CHECKED_FROM, HOLE, TOMBSTONE
from goqueue.core.record.hole import HOLE_ROWS_MAX

_HEADER: Final = struct.Struct(">3sBIq10xHIH")
_START: Final = b"GQ\x01"
_END_OFFSET: Final = struct.Struct(">Q")
assert _HEADER.size == FRAME_HEADER_BYTES


class StateRows(NamedTuple):
    """Rows in the order of the log, and the offset behind them. A value of None is a tombstone."""

    rows: list[tuple[bytes, bytes | None]]
    next_offset: Offset


def plain_rows(chunk: bytes, *, offset: Offset) -> StateRows:
    """Return the rows from an offset on, of a chunk that begins with a frame at or before it."""
    view = memoryview(chunk)
    rows: list[tuple[bytes, bytes | None]] = []
    position, size, wanted = 0, len(chunk), int(offset)
    header_of = _HEADER.unpack_from
    while size - position >= FRAME_HEADER_BYTES:
        start, flags, crc, at, key_size, value_size, headers_size = header_of(chunk, position)
        key_start = position + FRAME_HEADER_BYTES
        value_start = key_start + key_size
        end = value_start + value_size
        is_plain = key_size and (not flags or (flags == TOMBSTONE and not value_size))
        if (
            end > size
            or headers_size
            or not (is_plain or flags == HOLE)
            or start != _START
            or at > wanted
            or crc32c(view[position + CHECKED_FROM : end]) != crc
        ):
            break
        position = end
        if not is_plain:
            if value_size != _END_OFFSET.size:
                break
            (hole_end,) = _END_OFFSET.unpack_from(chunk, value_start)
            if not 0 < hole_end - at <= HOLE_ROWS_MAX:
                break
            wanted = max(wanted, hole_end)
        elif at == wanted:
            value = None if flags else chunk[value_start:end]
            rows.append((chunk[key_start:value_start], value))
            wanted += 1
    return StateRows(rows, Offset(wanted))
