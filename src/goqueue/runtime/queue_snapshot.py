"""The queue index on disk, as columns of numbers, so that a million delays cost a few writes.

 0        4        12       16
+--------+--------+--------+------------------+---------------------------------
| crc32c | end    | sizes  | size (u32) each  | blocks: 4 columns, 5 lanes, transactions, traces
|        | offset | count  |                  |
+--------+--------+--------+------------------+---------------------------------
"""

import struct
from typing import Final

import msgspec
import numpy as np
from crc32c import crc32c
from pyroaring import BitMap64

from goqueue.base.ids import Offset, Position
from goqueue.base.limits import PRIORITIES
from goqueue.core.tracing.caller_index import CallerIndex
from goqueue.core.tx.index import TxIndex
from goqueue.runtime.queue_index import QueueIndex
from goqueue.storage.disk import Disk, write_atomically

SNAPSHOT_NAME: Final = "queue.snapshot"
_HEAD: Final = struct.Struct(">IQ")
_COLUMNS: Final = 4
_SIZES: Final = struct.Struct(f">{_COLUMNS + PRIORITIES + 2}I")


def encode_snapshot(queue: QueueIndex, end_offset: Offset) -> bytes:
    """Lay out the index as it is after every message before ``end_offset``."""
    blocks = [column.tobytes() for column in queue.schedule.dump()]
    blocks += [lane.serialize() for lane in queue.lanes]
    blocks.append(msgspec.msgpack.encode(queue.tx.snapshot()))
    blocks.append(msgspec.msgpack.encode(queue.callers.snapshot()))
    body = b"".join((_SIZES.pack(*map(len, blocks)), *blocks))
    return _HEAD.pack(crc32c(body, end_offset & 0xFFFFFFFF), end_offset) + body


def write_snapshot(disk: Disk, directory: str, content: bytes) -> None:
    """Replace the snapshot. Any thread."""
    write_atomically(disk, f"{directory}/{SNAPSHOT_NAME}", content)


def restore_snapshot(
    queue: QueueIndex, disk: Disk, directory: str, *, known: range
) -> Offset | None:
    """Take what a good snapshot of a known offset holds; return that offset."""
    found = _read(disk, directory, known)
    if found is None:
        return None
    end_offset, blocks = found
    queue.schedule.restore([np.frombuffer(block, np.int64) for block in blocks[:_COLUMNS]])
    queue.tx = TxIndex.restore(msgspec.msgpack.decode(blocks[-2]))
    queue.callers = CallerIndex.restore(msgspec.msgpack.decode(blocks[-1]))
    for lane, block in zip(queue.lanes, blocks[_COLUMNS:-2], strict=True):
        lane |= BitMap64.deserialize(bytes(block))  # noqa: PLW2901 - changed in place
    return end_offset


def read_transactions(disk: Disk, directory: str, *, known: range) -> tuple[Offset, TxIndex]:
    """Return the transactions of a good snapshot and its offset; none, at the first, without."""
    found = _read(disk, directory, known)
    if found is None:
        return Offset(known.start), TxIndex()
    end_offset, blocks = found
    return end_offset, TxIndex.restore(msgspec.msgpack.decode(blocks[-2]))


def _read(disk: Disk, directory: str, known: range) -> tuple[Offset, list[memoryview]] | None:
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
    if crc32c(body, end_offset & 0xFFFFFFFF) != crc:
        raise ValueError("the checksum does not match")
    blocks: list[memoryview] = []
    position = _SIZES.size
    for size in _SIZES.unpack_from(body):
        blocks.append(body[position : position + size])
        position += size
    if position != len(body):
        raise ValueError("the sizes of the blocks do not add up")
    return Offset(end_offset), blocks
