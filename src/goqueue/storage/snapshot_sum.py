"""The checksum of what is kept beside a log: over its content and the offset it speaks of."""

import struct
from typing import Final

from crc32c import crc32c

from goqueue.base.ids import Offset

_HIGH: Final = struct.Struct(">I")


def snapshot_sum(body: bytes | memoryview, end_offset: Offset) -> int:
    """Return the checksum of a snapshot.

    Snapshots of earlier versions left the upper half of the offset out, which was always 0.
    """
    high = end_offset >> 32
    start = end_offset & 0xFFFFFFFF
    return crc32c(body, start ^ crc32c(_HIGH.pack(high)) if high else start)
