"""Row frames with a key, a value and the stamp of their producer: what single publishes send.

Shape: codec. The same bytes as ``encode_row`` makes and the same answer as ``check_frames`` gives,
read and written in one go: such a frame has at most one header, whose layout is known.
"""

import struct
from typing import Final

import msgspec
from crc32c import crc32c

from goqueue.base.limits import FRAME_HEADER_BYTES, TIMESTAMP_AHEAD_MS_MAX, VALUE_BYTES_MAX
from goqueue.base.units import NS_PER_MS, NS_PER_US
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.frame import (
    CHECKED_FROM,
    HAS_HEADERS,
    MAGIC,
    PRIORITY_NORMAL,
    VERSION,
    FrameHeader,
)
from goqueue.core.record.headers import PRODUCER, PRODUCER_FIELDS
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp

_HEADER: Final = struct.Struct(">3sBIqqHHIH")
"""A frame's header; priority and the reserved byte are one number."""
_CHECKED: Final = struct.Struct(">qqHHIH")
_PREFIX: Final = struct.Struct(">3sBI")
assert _HEADER.size == _PREFIX.size + _CHECKED.size == FRAME_HEADER_BYTES
_BEGIN: Final = MAGIC + bytes([VERSION])
_NORMAL: Final = PRIORITY_NORMAL << 8

_NAME: Final = PRODUCER.encode()
_STAMP_HEAD: Final = (
    struct.pack(">HH", 1, len(_NAME)) + _NAME + struct.pack(">H", PRODUCER_FIELDS.size)
)
_STAMP: Final = struct.Struct(f">{len(_STAMP_HEAD)}s{PRODUCER_FIELDS.format[1:]}")
"""The block of headers of a message that has only its producer's stamp."""


def check_single_row(frame: memoryview, *, now_ms: int) -> CheckedFrame | None:
    """Return a good frame as ``check_frames`` does; None if it is not plain, or not good."""
    size = len(frame)
    if size <= FRAME_HEADER_BYTES:
        return None
    begin, flags, crc, offset, time_ns, priority, key_size, value_size, headers_size = (
        _HEADER.unpack_from(frame)
    )
    if (
        begin != _BEGIN
        or priority != _NORMAL
        or offset < 0
        or not 0 < value_size <= VALUE_BYTES_MAX
        or size != FRAME_HEADER_BYTES + key_size + value_size + headers_size
        or not 0 <= time_ns < (now_ms + TIMESTAMP_AHEAD_MS_MAX) * NS_PER_MS
        or crc32c(frame[CHECKED_FROM:]) != crc
    ):
        return None
    if flags == HAS_HEADERS and headers_size == _STAMP.size:
        head, producer_id, epoch, sequence = _STAMP.unpack_from(frame, size - headers_size)
        if head != _STAMP_HEAD:
            return None
        stamp = ProducerStamp(producer_id, epoch, sequence)
    elif flags == 0 and headers_size == 0:
        stamp = NO_STAMP
    else:
        return None
    return CheckedFrame(
        header=FrameHeader(
            flags, crc, offset, time_ns, PRIORITY_NORMAL, key_size, value_size, headers_size
        ),
        frame=frame,
        rows=1,
        stamp=stamp,
        sequence_count=1,
        first_timestamp_us=time_ns // NS_PER_US,
    )


def check_single_rows(frames: memoryview, *, now_ms: int) -> list[CheckedFrame] | None:
    """Return good frames as ``check_frames`` does; None if one is not plain, or not good."""
    checked: list[CheckedFrame] = []
    position, size = 0, len(frames)
    while position < size:
        if size - position < FRAME_HEADER_BYTES:
            return None
        *_, key_size, value_size, headers_size = _HEADER.unpack_from(frames, position)
        end = position + FRAME_HEADER_BYTES + key_size + value_size + headers_size
        single = check_single_row(frames[position:end], now_ms=now_ms)
        if single is None:
            return None
        checked.append(single)
        position = end
    return checked or None


def encode_single_row(value: bytes, key: bytes, timestamp_us: int, stamp: ProducerStamp) -> bytes:
    """Return the frame of a message with a key and a value, neither of them empty."""
    assert key, "a key"
    assert value, "a value"
    headers, flags = b"", 0
    if stamp.is_idempotent:
        headers = _STAMP.pack(_STAMP_HEAD, stamp.producer_id, stamp.epoch, stamp.sequence)
        flags = HAS_HEADERS
    time_ns = timestamp_us * NS_PER_US
    checked = b"".join(
        (
            _CHECKED.pack(0, time_ns, _NORMAL, len(key), len(value), len(headers)),
            key,
            value,
            headers,
        )
    )
    return _PREFIX.pack(_BEGIN, flags, crc32c(checked)) + checked


class PackedRow(msgspec.Struct, frozen=True, gc=False):
    """One message with a key and a value, neither of them empty."""

    value: bytes
    key: bytes
    timestamp_us: int

    @property
    def rows(self) -> int:
        """Return how many messages there are."""
        return 1

    def frame(self, stamp: ProducerStamp) -> bytes:
        """Return the frame under a producer's stamp."""
        return encode_single_row(self.value, self.key, self.timestamp_us, stamp)


class PackedSingleRows(msgspec.Struct, frozen=True, gc=False):
    """A few messages with a key and a value, none of them empty, each its own frame."""

    messages: list[PackedRow]

    @property
    def rows(self) -> int:
        """Return how many messages there are."""
        return len(self.messages)

    def frame(self, stamp: ProducerStamp) -> bytes:
        """Return the frames under a producer's stamp."""
        return b"".join([one.frame(stamp.after(row)) for row, one in enumerate(self.messages)])
