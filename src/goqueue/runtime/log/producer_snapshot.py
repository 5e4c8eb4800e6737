"""The producer ledger on disk, so that opening a partition replays a short tail only."""

import struct
from typing import Any, Final

import msgspec

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset, Position
from goqueue.core.producers.ledger import Appended, ProducerLedger
from goqueue.core.record.batch import batch_fields
from goqueue.core.record.frame import CONTROL, FrameHeader
from goqueue.core.record.row import Row
from goqueue.storage.disk import Disk, write_atomically
from goqueue.storage.snapshot_sum import snapshot_sum

SNAPSHOT_NAME: Final = "producers.snapshot"
_HEAD: Final = struct.Struct(">IQ")


def encode_snapshot(ledger: ProducerLedger, end_offset: Offset) -> bytes:
    """Lay out the ledger as it is after every message before ``end_offset``."""
    body = msgspec.msgpack.encode(ledger.snapshot())
    return _HEAD.pack(snapshot_sum(body, end_offset), end_offset) + body


def write_snapshot(disk: Disk, directory: str, content: bytes, *, mark: str = "") -> None:
    """Replace the snapshot. Any thread, if two that may meet have a different mark."""
    write_atomically(disk, f"{directory}/{SNAPSHOT_NAME}", content, mark=mark)


def read_ledger(disk: Disk, directory: str, *, known: range) -> tuple[ProducerLedger, Offset]:
    """Return the ledger of a good snapshot and its offset, or an empty one from the beginning."""
    ledger, offset = _read(disk, f"{directory}/{SNAPSHOT_NAME}")
    if offset not in known:
        # Without a snapshot of this log, everything that is left of it is replayed.
        return ProducerLedger(), Offset(known.start)
    return ledger, offset


def drop_producers(disk: Disk, directory: str, *, known: range) -> None:
    """Remove the snapshot, durably, unless it is of a known offset."""
    path = f"{directory}/{SNAPSHOT_NAME}"
    if disk.exists(path) and _read(disk, path)[1] not in known:
        disk.remove(path)
        disk.sync_directory(directory)


def _read(disk: Disk, path: str) -> tuple[ProducerLedger, Offset]:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return ProducerLedger(), Offset(-1)
    raw = file.read(Position(0), file.size())
    file.close()
    try:
        crc, end_offset = _HEAD.unpack_from(raw)
        if snapshot_sum(raw[_HEAD.size :], end_offset) != crc:
            return ProducerLedger(), Offset(-1)
        plain: list[Any] = msgspec.msgpack.decode(raw[_HEAD.size :])
        return ProducerLedger.restore(plain), Offset(end_offset)
    except (struct.error, msgspec.MsgspecError, ValueError, TypeError):
        return ProducerLedger(), Offset(-1)


def appended(header: FrameHeader, frame: memoryview) -> Appended | None:
    """Return what a stored frame says of its producer."""
    if header.flags & CONTROL:
        return None
    try:
        if not header.is_batch:
            stamp = Row(header, frame).stamp
            return Appended(stamp=stamp, sequence_count=1, base_offset=header.offset)
        fields = batch_fields(header, frame)
    except CorruptFrameError:
        return None
    return Appended(
        stamp=fields.stamp,
        sequence_count=fields.sequence_count,
        base_offset=header.offset,
        repeats=fields.repeats,
    )
