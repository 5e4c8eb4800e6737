"""The records of machines as they lie in a partition of a state topic.

A machine (a group, a delivery ledger, a schedule) has a key and a home, the name that chooses its
partition. Its records are rows of a compacted topic, so that old ones go away by themselves:

    key  "MACHINE"          value  number, events      a snapshot: the state before that number
    key  "MACHINE#SLOT"     value  number, events      a change; SLOT is its number modulo SLOTS

A slot is used again only when a snapshot has taken the place of what was in it. What a load
replays is the last snapshot and the changes from its number on.
"""

import struct
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_HEADER_BYTES
from goqueue.base.units import NS_PER_US, US_PER_MS, KiB, MiB
from goqueue.core.log.plain_rows import plain_rows
from goqueue.core.log.scan import Walk
from goqueue.core.record.check import CheckedFrame, check_frames
from goqueue.core.record.frame import CONTROL, PRIORITY_NORMAL, TOMBSTONE, FrameHeader
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.row import Row
from goqueue.core.record.stamp import NO_STAMP
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.log.partition import Partition

SLOTS: Final = 1_024
FEW_CHANGES: Final = 2
FEW_BYTES: Final = 8 * KiB
"""What a few small changes take at most."""
SNAPSHOT_BYTES_MAX: Final = 256 * MiB
"""No state is larger than this before it is compressed."""
READ_BYTES: Final = 1 * MiB

NUMBER: Final = struct.Struct(">Q")
_NO_HEADER: Final = bytes(FRAME_HEADER_BYTES)
log = get_logger("goqueue.state")


class Trace:
    """What is known of one machine's records."""

    __slots__ = (
        "bytes_since",
        "changes",
        "is_damaged",
        "number",
        "snapshot",
        "snapshot_bytes",
        "snapshot_number",
    )

    def __init__(self) -> None:
        self.number = 0
        self.snapshot_number = 0
        self.snapshot_bytes = 0
        self.bytes_since = 0
        # Both as they are stored, numbers included, and only until they are replayed.
        self.snapshot: bytes | None = None
        self.changes: dict[int, bytes] = {}
        self.is_damaged = False

    def take_snapshot(self, number: int, value: bytes) -> None:
        """Let changes before a snapshot go."""
        self.snapshot_number = number
        self.snapshot = value
        self.changes = {n: change for n, change in self.changes.items() if n >= number}

    def count(self) -> None:
        """Work out where the machine is, once all its records were taken."""
        self.number = max(self.changes, default=self.snapshot_number - 1) + 1
        self.snapshot_bytes = len(self.snapshot or b"")
        self.bytes_since = sum(map(len, self.changes.values()))

    def has_room(self, bytes_min: int) -> bool:
        """Return True if a few small changes may come before the next snapshot."""
        return (
            not self.is_damaged
            and self.number - self.snapshot_number < SLOTS - FEW_CHANGES
            and self.bytes_since + FEW_BYTES <= bytes_min + 4 * self.snapshot_bytes
        )

    def is_due(self, bytes_min: int) -> bool:
        """Return True if a snapshot must come before the next change."""
        return (
            self.is_damaged
            or self.number - self.snapshot_number >= SLOTS
            or self.bytes_since > bytes_min + 4 * self.snapshot_bytes
        )


def change_row(key: str, number: int, change: bytes) -> tuple[bytes, bytes]:
    """Return the key and the value of the record of a change."""
    return f"{key}#{number % SLOTS}".encode(), NUMBER.pack(number) + change


def end_rows(key: str, trace: Trace, *, now_ms: int) -> list[CheckedFrame]:
    """Return the frames that end a machine, as those that passed the check; appending seals them.

    The first row ends it. Compaction alone looks at those of its slots, so they are one batch,
    whatever their number.
    """
    name, timestamp_us = key.encode(), now_ms * US_PER_MS
    slots = [
        Draft(value=None, key=f"{key}#{slot}".encode(), timestamp_us=timestamp_us)
        for slot in range(min(trace.number, SLOTS))
    ]
    header = FrameHeader(
        TOMBSTONE, 0, Offset(0), timestamp_us * NS_PER_US, PRIORITY_NORMAL, len(name), 0, 0
    )
    end = CheckedFrame(
        header=header,
        frame=_NO_HEADER + name,
        rows=1,
        stamp=NO_STAMP,
        sequence_count=1,
        first_timestamp_us=timestamp_us,
    )
    return [end, *check_frames(memoryview(frame_drafts(slots)), now_ms=now_ms, by_broker=True)]


def read_records(partition: Partition, found: dict[bytes, Trace]) -> None:
    """Take every record of a partition, in the order of its log."""
    offset, end = partition.log.start_offset, partition.log.end_offset
    while offset < end:
        location = partition.reader.locate(offset, bytes_max=READ_BYTES)
        chunk = bytes(location.file.read(location.position, location.size))
        rows, next_offset = plain_rows(chunk, offset=offset)
        _take(rows, found)
        if next_offset > offset:
            offset = next_offset
            continue
        piece = partition.reader.read(offset, end_offset=end, bytes_max=READ_BYTES)
        for gap in piece.gaps:
            log.error(LogEvent.STATE_UNREADABLE, partition=str(partition.name), offsets=list(gap))
        for span in Walk(piece.frames):
            if not span.header.flags & CONTROL and not span.header.is_batch:
                row = Row(span.header, piece.frames[span.start : span.end])
                assert row.key is not None, "every record has a machine"
                _take([(row.key, row.value)], found)
        if piece.next_offset <= offset:
            break
        offset = piece.next_offset


def _take(rows: Iterable[tuple[bytes, bytes | None]], found: dict[bytes, Trace]) -> None:
    """Take records in the order of the log. There may be hundreds of thousands: one flat piece."""
    number_of = NUMBER.unpack_from
    for key, value in rows:
        name, _, slot = key.partition(b"#")
        if not value:
            # Nothing but the end of a machine has no value, whatever the flag of it says.
            if not slot:
                found.pop(name, None)
            continue
        trace = found.get(name)
        if trace is None:
            trace = found[name] = Trace()
        (number,) = number_of(value)
        if not slot:
            trace.take_snapshot(number, value)
        elif number >= trace.snapshot_number:
            trace.changes[number] = value


def pack_snapshot(events: bytes) -> bytes:
    """Return a snapshot as it is stored: its size, then compressed, for most of it is alike."""
    small: bytes = pa.compress(events, codec="zstd", asbytes=True)
    return NUMBER.pack(len(events)) + small


def unpack_snapshot(stored: bytes) -> bytes:
    """Return the events of a snapshot."""
    (size,) = NUMBER.unpack_from(stored)
    assert size <= SNAPSHOT_BYTES_MAX, "a snapshot of ours"
    raw: bytes = pa.decompress(
        stored[NUMBER.size :], decompressed_size=size, codec="zstd", asbytes=True
    )
    return raw
