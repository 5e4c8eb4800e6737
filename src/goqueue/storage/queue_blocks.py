"""The file beside a log that holds what the queue knows of it, as checked blocks of bytes.

 0        4        12       16
+--------+--------+--------+------------------+---------------------------------
| crc32c | end    | sizes  | size (u32) each  | blocks: 4 columns, 5 lanes, transactions, traces,
|        | offset | count  |                  | cancelled messages, offsets without a message
+--------+--------+--------+------------------+---------------------------------
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from goqueue.base.ids import Offset, Position
from goqueue.base.limits import PRIORITIES
from goqueue.core.tx.index import TxIndex
from goqueue.storage.disk import Disk, write_atomically
from goqueue.storage.snapshot_sum import snapshot_sum

SNAPSHOT_NAME: Final = "queue.snapshot"
COLUMNS: Final = 4
TRANSACTIONS: Final = COLUMNS + PRIORITIES
CALLERS: Final = TRANSACTIONS + 1
CANCELLED: Final = CALLERS + 1
EMPTY: Final = CANCELLED + 1
_HEAD: Final = struct.Struct(">IQ")
_SIZES: Final = struct.Struct(f">{EMPTY + 1}I")


def encode_blocks(blocks: Sequence[bytes], end_offset: Offset) -> bytes:
    """Lay out what is known of every message before ``end_offset``."""
    body = b"".join((_SIZES.pack(*map(len, blocks)), *blocks))
    return _HEAD.pack(snapshot_sum(body, end_offset), end_offset) + body


def write_snapshot(disk: Disk, directory: str, content: bytes) -> None:
    """Replace the snapshot. Any thread."""
    write_atomically(disk, f"{directory}/{SNAPSHOT_NAME}", content)


def drop_snapshot(disk: Disk, directory: str) -> None:
    """Have the index read off the log at the next start, durably. Any thread."""
    disk.remove(f"{directory}/{SNAPSHOT_NAME}")
    disk.sync_directory(directory)


def drop_unless(disk: Disk, directory: str, *, known: range) -> None:
    """Remove the snapshot, durably, unless it is of a known offset."""
    is_there = disk.exists(f"{directory}/{SNAPSHOT_NAME}")
    if is_there and read_blocks(disk, directory, known=known) is None:
        drop_snapshot(disk, directory)


def read_transactions(disk: Disk, directory: str, *, known: range) -> tuple[Offset, TxIndex]:
    """Return the transactions of a good snapshot and its offset; none, at the first, without."""
    found = read_blocks(disk, directory, known=known)
    if found is None:
        return Offset(known.start), TxIndex()
    end_offset, blocks = found
    return end_offset, TxIndex.restore(msgspec.msgpack.decode(blocks[TRANSACTIONS]))


def read_blocks(
    disk: Disk, directory: str, *, known: range
) -> tuple[Offset, list[memoryview]] | None:
    """Return the offset and the blocks of a good snapshot of a known offset."""
    try:
        file = disk.open(f"{directory}/{SNAPSHOT_NAME}")
    except FileNotFoundError:
        return None
    raw = memoryview(file.read(Position(0), file.size()))
    file.close()
    try:
        end_offset, blocks = _decode(raw)
    except (struct.error, ValueError):
        return None
    return (end_offset, blocks) if end_offset in known else None


def _decode(raw: memoryview) -> tuple[Offset, list[memoryview]]:
    crc, end_offset = _HEAD.unpack_from(raw)
    body = raw[_HEAD.size :]
    if snapshot_sum(body, end_offset) != crc:
        raise ValueError("the checksum does not match")
    sizes = _SIZES.unpack_from(body)
    if _SIZES.size + sum(sizes) != len(body):
        # Also one of an earlier version: the index is read off the log then.
        raise ValueError("the sizes of the blocks do not add up")
    ends = list(accumulate(sizes, initial=_SIZES.size))
    return Offset(end_offset), [body[start:end] for start, end in pairwise(ends)]
