"""Telling a write that a crash cut short from bytes that were stored and are damaged now.

Shape: calculator. A crash loses whole device sectors, which then read as zeros, or the end of the
file. Bad bytes without either were written as they should be, so somebody may know of them: they
are damage, and the offsets they had are not given to other messages.
"""

import struct
from typing import Final

from crc32c import crc32c

from goqueue.base.ids import Offset
from goqueue.base.limits import BATCH_ROWS_MAX, FRAME_HEADER_BYTES
from goqueue.core.log.scan import SECTOR_BYTES, Span, has_lost_sector
from goqueue.core.record.batch import FIELDS, LAYOUT
from goqueue.core.record.frame import BATCH_KEY_BYTES, CHECKED_FROM

_SIZES: Final = struct.Struct(">HIH")
_SIZES_AT: Final = FRAME_HEADER_BYTES - _SIZES.size
_CRC: Final = struct.Struct(">4xI")
_BITS: Final = (16, 32, 16)


def is_torn(tail: bytes, *, position: int, following: Span | None, has_ended_early: bool) -> bool:
    """Return True if a bad frame at the end of a log is half a write, which nobody was promised.

    ``tail`` is all from the bad frame on, ``following`` the next good frame in it and
    ``has_ended_early`` whether the file ends before the bad frame says it does.
    """
    if following is not None:
        return has_lost_sector(tail, start=0, end=following.start, origin=position)
    if has_ended_early:
        return not _is_whole_but_for_a_size(tail)
    return has_lost_part(tail, position)


def has_lost_part(tail: bytes, position: int) -> bool:
    """Return True if the part of some sector that is in the tail reads as zeros."""
    start, end = 0, SECTOR_BYTES - position % SECTOR_BYTES
    while start < len(tail):
        if not any(tail[start:end]):
            return True
        start, end = end, end + SECTOR_BYTES
    return False


def _is_whole_but_for_a_size(tail: bytes) -> bool:
    """Return True if a frame would be good if one bit of the sizes in its header were another."""
    if len(tail) < FRAME_HEADER_BYTES:
        return False
    sizes = _SIZES.unpack_from(tail, _SIZES_AT)
    excess = FRAME_HEADER_BYTES + sum(sizes) - len(tail)
    for field, bits in enumerate(_BITS):
        if excess.bit_count() != 1 or excess.bit_length() > bits or not sizes[field] & excess:
            continue
        mended = list(sizes)
        mended[field] -= excess
        head = tail[CHECKED_FROM:_SIZES_AT] + _SIZES.pack(*mended)
        if crc32c(tail[FRAME_HEADER_BYTES:], crc32c(head)) == _CRC.unpack_from(tail)[0]:
            return True
    return False


def end_of_damage(tail: bytes, offset: Offset) -> Offset:
    """Return an offset behind all messages that damaged frames at the end of a log may have held.

    Their headers are believed as far as they make sense; where they do not, a frame counts as the
    largest one there is.
    """
    position = 0
    while position < len(tail):
        if len(tail) - position < FRAME_HEADER_BYTES:
            return Offset(offset + 1)
        key, value, headers = _SIZES.unpack_from(tail, position + _SIZES_AT)
        end = position + FRAME_HEADER_BYTES + key + value + headers
        rows = 1
        if key == BATCH_KEY_BYTES and headers >= FIELDS.size and end <= len(tail):
            layout, _, _, _, rows, _, _, _, _, _, sequences, *_ = FIELDS.unpack_from(
                tail, end - headers
            )
            # Both count the messages, repeats aside; the bad bit may be in either.
            rows = max(rows, sequences) if layout == LAYOUT else BATCH_ROWS_MAX
        if end > len(tail) or rows > BATCH_ROWS_MAX:
            return Offset(offset + BATCH_ROWS_MAX)
        offset, position = Offset(offset + rows), end
    return offset
