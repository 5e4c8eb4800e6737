"""The frame: the unit the log stores, the wire carries and the checksum covers.

Shape: codec. Big-endian. The checksum is CRC-32C over everything behind it.

     0       2   3   4        8        16         24  25  26     28      32        34
    +-------+---+---+--------+--------+----------+---+---+------+-------+---------+-----+-------+---
    | "GQ"  | 1 | f | crc32c | offset | time (ns)| p | 0 | key  | value | headers | key | value | …
    |       |ver|   |        |        |          |rio|   | size | size  | size    | …   | …     |
    +-------+---+---+--------+--------+----------+---+---+------+-------+---------+-----+-------+---

A row frame is one message. A batch frame (flag BATCH) holds an Arrow record batch as its value;
its offset is that of the first message and its time the latest in it (see ``batch``).
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_BYTES_MAX, FRAME_HEADER_BYTES, PRIORITIES

MAGIC: Final = b"GQ"
VERSION: Final = 1

COMPRESSED: Final = 0x01
HAS_HEADERS: Final = 0x02
TOMBSTONE: Final = 0x04
CONTROL: Final = 0x08
TX_COMMIT: Final = 0x10
BATCH: Final = 0x20
FLAGS_KNOWN: Final = COMPRESSED | HAS_HEADERS | TOMBSTONE | CONTROL | TX_COMMIT | BATCH

CONTROL_BYTES: Final = 12
"""Producer id, epoch and the size of the transactional id, which is also the key."""

HOLE: Final = CONTROL | TOMBSTONE
"""Flags of a hole. No other frame has both, so one flipped bit makes neither the other."""

HOLE_BYTES: Final = 8
"""The value of a hole: the offset behind it."""

PRIORITY_NORMAL: Final = 2
BATCH_KEY_BYTES: Final = 6
"""Zero bytes in the place of a batch's key, so that its value begins at a multiple of eight."""
CHECKED_FROM: Final = 8

Buffer = bytes | bytearray | memoryview

_HEADER: Final = struct.Struct(">2sBBIqqBBHIH")
_CHECKED_HEADER: Final = struct.Struct(">qqBBHIH")
_PREFIX: Final = struct.Struct(">2sBBI")
OUTLINE: Final = struct.Struct(">3sBIq8xBxHIH")
"""What a walk over frames needs of a header: how it begins, flags, checksum, offset, priority and
the three sizes."""
assert _HEADER.size == OUTLINE.size == FRAME_HEADER_BYTES
assert _PREFIX.size == CHECKED_FROM
assert _PREFIX.size + _CHECKED_HEADER.size == FRAME_HEADER_BYTES


class FrameHeader(NamedTuple):
    """The fixed part of a frame, believed only after ``verify``."""

    flags: int
    crc: int
    offset: Offset
    timestamp_ns: int
    priority: int
    key_size: int
    value_size: int
    headers_size: int

    @property
    def size(self) -> int:
        """Return the length of the whole frame."""
        return FRAME_HEADER_BYTES + self.key_size + self.value_size + self.headers_size

    @property
    def is_batch(self) -> bool:
        """Tell a batch frame from a row frame."""
        return bool(self.flags & BATCH)

    @property
    def is_hole(self) -> bool:
        """Return True if the frame stands for offsets that compaction has emptied."""
        return self.flags == HOLE


def read_header(buffer: Buffer, position: int = 0) -> FrameHeader:
    """Read and bound the header at a position; the frame itself may lie beyond the buffer."""
    if len(buffer) - position < FRAME_HEADER_BYTES:
        raise CorruptFrameError(
            f"a frame needs {FRAME_HEADER_BYTES} bytes of header; {len(buffer) - position} are left"
        )
    magic, version, flags, crc, offset, timestamp, priority, reserved, key, value, headers = (
        _HEADER.unpack_from(buffer, position)
    )
    if magic != MAGIC or version != VERSION or reserved != 0 or flags & ~FLAGS_KNOWN:
        raise CorruptFrameError("bytes do not begin with a frame header of version 1")
    if priority >= PRIORITIES or offset < 0 or timestamp < 0:
        raise CorruptFrameError("frame header holds an impossible priority, offset or time")
    if not _flags_fit(flags, priority=priority, key=key, value=value, headers=headers):
        raise CorruptFrameError("frame header holds flags that do not fit the frame")
    if FRAME_HEADER_BYTES + key + value + headers > FRAME_BYTES_MAX:
        raise CorruptFrameError(f"frame declares more than {FRAME_BYTES_MAX} bytes")
    return FrameHeader(flags, crc, Offset(offset), timestamp, priority, key, value, headers)


def _flags_fit(flags: int, *, priority: int, key: int, value: int, headers: int) -> bool:
    """Check the flags against the rest: the contract leaves them out of the checksum."""
    if flags & BATCH:
        return flags & ~COMPRESSED == BATCH | HAS_HEADERS and key == BATCH_KEY_BYTES
    if flags & COMPRESSED or bool(flags & HAS_HEADERS) != bool(headers):
        return False
    if flags == HOLE:
        return priority == 0 and value == HOLE_BYTES and key == 0
    if flags & CONTROL:
        return priority == 0 and value == CONTROL_BYTES + key and not flags & TOMBSTONE
    return not flags & TX_COMMIT and not (flags & TOMBSTONE and value)


def verify(frame: Buffer, header: FrameHeader) -> None:
    """Check that the frame is whole and its checksum holds."""
    if len(frame) != header.size:
        raise CorruptFrameError(f"frame of {header.size} bytes is cut at {len(frame)}")
    if crc32c(memoryview(frame)[CHECKED_FROM:]) != header.crc:
        raise CorruptFrameError(f"checksum of the frame at offset {header.offset} does not match")


def seal_header(header: FrameHeader, *rest: Buffer, offset: Offset | None = None) -> bytes:
    """Return the header's bytes with the checksum over them and the rest (key, value, headers).

    With an offset it is that of the frame, whatever its header says.
    """
    flags, _, own, timestamp_ns, priority, key_size, value_size, headers_size = header
    at = own if offset is None else offset
    checked = _CHECKED_HEADER.pack(
        at, timestamp_ns, priority, 0, key_size, value_size, headers_size
    )
    crc = crc32c(checked)
    for buffer in rest:
        crc = crc32c(buffer, crc)
    return _PREFIX.pack(MAGIC, VERSION, flags, crc) + checked


def encode_frame(
    *,
    flags: int,
    offset: Offset,
    timestamp_ns: int,
    key: Buffer = b"",
    value: Buffer = b"",
    headers: Buffer = b"",
    priority: int = PRIORITY_NORMAL,
) -> bytes:
    """Lay out one frame."""
    checked = b"".join(
        (
            _CHECKED_HEADER.pack(
                offset, timestamp_ns, priority, 0, len(key), len(value), len(headers)
            ),
            key,
            value,
            headers,
        )
    )
    return _PREFIX.pack(MAGIC, VERSION, flags, crc32c(checked)) + checked
