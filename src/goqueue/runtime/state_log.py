"""Where the state of the queue survives: the events of its machines in ``__consumer_offsets``.

A machine (a group, a delivery ledger, a schedule) has a key and a home, the name that chooses its
partition. Its records are rows of a compacted topic, so that old ones go away by themselves:

    key  "MACHINE"          value  number, events      a snapshot: the state before that number
    key  "MACHINE#SLOT"     value  number, events      a change; SLOT is its number modulo SLOTS

A slot is used again only when a snapshot has taken the place of what was in it. What a restart
replays is the last snapshot and the changes from its number on.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from goqueue.base.errors import CorruptFrameError, DiskFullError
from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_BYTES_MAX, FRAME_HEADER_BYTES
from goqueue.base.units import NS_PER_US, US_PER_MS, KiB, MiB
from goqueue.core.log.plain_rows import plain_rows
from goqueue.core.log.scan import Walk
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.core.record.check import CheckedFrame, check_frames
from goqueue.core.record.frame import CONTROL, PRIORITY_NORMAL, TOMBSTONE, FrameHeader
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.row import Row
from goqueue.core.record.stamp import NO_STAMP
from goqueue.observability.logging import get_logger
from goqueue.runtime.ballast import Ballast
from goqueue.runtime.clock import Clock
from goqueue.runtime.partition import Partition
from goqueue.runtime.topic import Topic

STATE_TOPIC: Final = "__consumer_offsets"
STATE_PARTITIONS: Final = 50
STATE_SEGMENT_BYTES: Final = 4 * MiB
"""Small, because what lies in the segment that takes appends is not compacted."""
SLOTS: Final = 1_024
SNAPSHOT_BYTES_MIN: Final = 64 * KiB
"""So many bytes of changes may follow a snapshot, however small it is."""
SNAPSHOT_BYTES_MAX: Final = 256 * MiB
"""No state is larger than this before it is compressed."""
READ_BYTES: Final = 1 * MiB
HOMES_KEPT_MAX: Final = 1_000

_NUMBER: Final = struct.Struct(">Q")
_NO_HEADER: Final = bytes(FRAME_HEADER_BYTES)
_encode: Final = msgspec.msgpack.Encoder().encode
log = get_logger("goqueue.state")


class _Trace:
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
        self.snapshot_number = number
        self.snapshot = value
        self.changes = {n: change for n, change in self.changes.items() if n >= number}

    def count(self) -> None:
        """Work out where the machine is, once all its records were taken."""
        self.number = max(self.changes, default=self.snapshot_number - 1) + 1
        self.snapshot_bytes = len(self.snapshot or b"")
        self.bytes_since = sum(map(len, self.changes.values()))

    def is_due(self, bytes_min: int) -> bool:
        """Tell whether a snapshot must come before the next change."""
        return (
            self.is_damaged
            or self.number - self.snapshot_number >= SLOTS
            or self.bytes_since > bytes_min + 4 * self.snapshot_bytes
        )


class StateLog:
    """Appends the events of machines and hands them back after a restart."""

    def __init__(
        self,
        open_topic: Callable[[], Topic],
        clock: Clock,
        ballast: Ballast,
        *,
        snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._snapshot_bytes_min = snapshot_bytes_min
        self._open_topic = open_topic
        self._prepare = prepare
        self._clock = clock
        self._ballast = ballast
        self._topic: Topic | None = None
        self._traces: dict[str, _Trace] = {}
        self._homes: dict[str, Partition] = {}
        """Where homes were found to be: working it out takes as long as encoding a change."""

    def __repr__(self) -> str:
        return f"<StateLog of {len(self._traces)} machines>"

    # Starting.

    def recover(self, topic: Topic | None) -> None:
        """Read what there is; without a topic there is nothing."""
        self._topic = topic
        if topic is not None:
            self._ballast.take()
        found: dict[bytes, _Trace] = {}
        for partition in topic.partitions if topic is not None else ():
            self._recover(partition, found)
        for name, trace in found.items():
            trace.count()
            self._traces[name.decode()] = trace

    @staticmethod
    def _recover(partition: Partition, found: dict[bytes, _Trace]) -> None:
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
                log.error("state is damaged", partition=str(partition.name), offsets=list(gap))
            for span in Walk(piece.frames):
                if not span.header.flags & CONTROL and not span.header.is_batch:
                    row = Row(span.header, piece.frames[span.start : span.end])
                    assert row.key is not None, "every record has a machine"
                    _take([(row.key, row.value)], found)
            if piece.next_offset <= offset:
                break
            offset = piece.next_offset

    def recovered(self, prefix: str) -> list[str]:
        """Return the keys of the machines found at start that begin so, in order."""
        return sorted(key for key in self._traces if key.startswith(prefix))

    def replay(self, key: str, kind: Any) -> list[Any]:  # noqa: ANN401 - a union is no type
        """Return what happened to a machine, in order, and keep it no longer."""
        trace = self._traces.get(key)
        if trace is None:
            return []
        decode = msgspec.msgpack.Decoder(list[kind]).decode
        events: list[Any] = (
            decode(_unpack(trace.snapshot[_NUMBER.size :])) if trace.snapshot else []
        )
        for number in range(trace.snapshot_number, trace.number):
            change = trace.changes.get(number)
            if change is None:
                log.error(
                    "state is damaged: changes are missing; what they settled comes again",
                    machine=key,
                    first_missing=number,
                    dropped=trace.number - number,
                )
                # What follows could not be told from the missing ones: the next change begins anew.
                trace.is_damaged = True
                break
            events += decode(memoryview(change)[_NUMBER.size :])
        trace.changes.clear()
        trace.snapshot = None
        return events

    def note_damage(self, key: str) -> None:
        """Let the next change of a machine begin anew with a snapshot."""
        trace = self._traces.get(key)
        if trace is not None:
            trace.is_damaged = True

    @property
    def is_open(self) -> bool:
        """Tell whether there is a topic to write to."""
        return self._topic is not None

    async def prepare(self) -> None:
        """Make the topic without keeping others waiting; a write would do it at once."""
        if self._prepare is not None:
            await self._prepare()
        if self._topic is None:
            self._topic = self._open_topic()

    # Changing.

    def append(
        self,
        key: str,
        *,
        home: str,
        events: Sequence[msgspec.Struct],
        snapshot: Callable[[], Iterable[msgspec.Struct]],
    ) -> asyncio.Future[None]:
        """Write events; the future is done when they are durable. Raises with nothing written."""
        self.write(key, home=home, events=events, snapshot=snapshot)
        return self.durable(home)

    def durable(self, home: str) -> asyncio.Future[None]:
        """Return a future that is done when everything written for a home is durable."""
        return self._partition(home).durable()

    async def settle(self, home: str, *, is_alone: bool) -> None:
        """Return when everything written for a home is durable.

        Who asks for one thing at a time has it synced at once, where nobody else waits. Of those
        who ask for the next meanwhile, several share a sync.
        """
        partition = self._partition(home)
        if not (is_alone and partition.sync_at_once()):
            await partition.durable()

    def write(
        self,
        key: str,
        *,
        home: str,
        events: Sequence[msgspec.Struct],
        snapshot: Callable[[], Iterable[msgspec.Struct]],
    ) -> None:
        """Write events, not yet durably. Raises with nothing written.

        ``snapshot`` is asked for the state before these events when it is time to write it.
        """
        partition = self._partition(home)
        trace = self._traces.get(key) or _Trace()
        rows: list[CheckedFrame] = []
        stored: bytes | None = None
        if trace.is_due(self._snapshot_bytes_min):
            stored = _pack(_encode(list(snapshot())))
            rows.append(self._row(key, _NUMBER.pack(trace.number) + stored))
        change = _encode(events)
        slot = trace.number % SLOTS
        rows.append(self._row(f"{key}#{slot}", _NUMBER.pack(trace.number) + change))
        self._append_frames(partition, rows)
        self._traces[key] = trace
        if stored is not None:
            trace.snapshot_number = trace.number
            trace.snapshot_bytes = len(stored)
            trace.bytes_since = 0
            trace.is_damaged = False
        trace.number += 1
        trace.bytes_since += len(change)

    def is_snapshot_due(self, key: str) -> bool:
        """Tell whether the next write of a machine begins with a snapshot of it."""
        trace = self._traces.get(key)
        return trace is not None and trace.is_due(self._snapshot_bytes_min)

    def forget(self, key: str, *, home: str) -> asyncio.Future[None]:
        """Write that a machine is gone; the future is done when that is durable."""
        trace = self._traces.get(key)
        if trace is None:
            done = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        partition = self._partition(home)
        # Compaction alone looks at those of slots, so they are one batch, whatever their number.
        slots = [
            Draft(value=None, key=f"{key}#{slot}".encode(), timestamp_us=self._now_us())
            for slot in range(min(trace.number, SLOTS))
        ]
        ends = memoryview(frame_drafts(slots))
        checked = check_frames(ends, now_ms=self._clock.now_ms(), by_broker=True)
        self._append_frames(partition, [self._row(key, None), *checked])
        del self._traces[key]
        return partition.durable()

    def _append_frames(self, partition: Partition, frames: Sequence[CheckedFrame]) -> None:
        try:
            partition.append_beyond(frames)
        except DiskFullError:
            if not self._ballast.give_up():
                raise
            partition.append_beyond(frames)

    def _partition(self, home: str) -> Partition:
        known = self._homes.get(home)
        if known is not None:
            return known
        if self._topic is None:
            self._topic = self._open_topic()
            self._ballast.take()
        if len(self._homes) >= HOMES_KEPT_MAX:
            self._homes.clear()
        number = partition_of_key(home.encode(), len(self._topic.partitions))
        self._homes[home] = self._topic.partitions[number]
        return self._homes[home]

    def _row(self, key: str, value: bytes | None) -> CheckedFrame:
        """Return a row frame as one that passed the check; appending it seals it."""
        name, content = key.encode(), value or b""
        timestamp_us = self._now_us()
        header = FrameHeader(
            TOMBSTONE if value is None else 0,
            0,
            Offset(0),
            timestamp_us * NS_PER_US,
            PRIORITY_NORMAL,
            len(name),
            len(content),
            0,
        )
        if header.size > FRAME_BYTES_MAX:
            raise CorruptFrameError(f"a record of {header.size} bytes; no frame is so large")
        return CheckedFrame(
            header=header,
            frame=_NO_HEADER + name + content,
            rows=1,
            stamp=NO_STAMP,
            sequence_count=1,
            first_timestamp_us=timestamp_us,
        )

    def _now_us(self) -> int:
        return self._clock.now_ms() * US_PER_MS


def _take(rows: Iterable[tuple[bytes, bytes | None]], found: dict[bytes, _Trace]) -> None:
    """Take records in the order of the log. There may be hundreds of thousands: one flat piece."""
    number_of = _NUMBER.unpack_from
    for key, value in rows:
        name, _, slot = key.partition(b"#")
        if value is None:
            if not slot:
                found.pop(name, None)
            continue
        trace = found.get(name)
        if trace is None:
            trace = found[name] = _Trace()
        (number,) = number_of(value)
        if not slot:
            trace.take_snapshot(number, value)
        elif number >= trace.snapshot_number:
            trace.changes[number] = value


def _pack(events: bytes) -> bytes:
    """Return a snapshot as it is stored: its size, then compressed, for most of it is alike."""
    small: bytes = pa.compress(events, codec="zstd", asbytes=True)
    return _NUMBER.pack(len(events)) + small


def _unpack(stored: bytes) -> bytes:
    (size,) = _NUMBER.unpack_from(stored)
    assert size <= SNAPSHOT_BYTES_MAX, "a snapshot of ours"
    raw: bytes = pa.decompress(
        stored[_NUMBER.size :], decompressed_size=size, codec="zstd", asbytes=True
    )
    return raw
