"""Where the state of the queue survives: the events of its machines in ``__consumer_offsets``.

A partition is loaded before its machines may be hosted, all of them at a start, and unloaded when
somebody else is to host them: from then on whoever asks for one is told to ask again. How records
lie in a partition is in ``state_records.py``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from goqueue.base.errors import DiskFullError, NotCoordinatorError
from goqueue.base.ids import TopicPartition
from goqueue.base.units import NS_PER_MS, KiB
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.ballast import Ballast
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.own_rows import append_own
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.machine import Placed, StatePart
from goqueue.runtime.state_records import (
    NUMBER,
    Trace,
    change_row,
    end_rows,
    pack_snapshot,
    read_records,
    unpack_snapshot,
)

STATE_TOPIC: Final = "__consumer_offsets"
STATE_PARTITIONS: Final = 50
SNAPSHOT_BYTES_MIN: Final = 64 * KiB
"""So many bytes of changes may follow a snapshot, however small it is."""
HOMES_KEPT_MAX: Final = 1_000

_encode: Final = msgspec.msgpack.Encoder().encode
log = get_logger("goqueue.state")


class LoadedPart:
    """One partition of the topic, and what is known of the machines in it."""

    __slots__ = ("is_loaded", "log", "traces")

    def __init__(self) -> None:
        self.log: Partition | None = None
        self.traces: dict[str, Trace] = {}
        self.is_loaded = False

    def load(self) -> None:
        """Read the records of every machine."""
        found: dict[bytes, Trace] = {}
        if self.log is not None:
            read_records(self.log, found)
        for trace in found.values():
            trace.count()
        self.traces = {name.decode(): trace for name, trace in found.items()}
        self.is_loaded = True


class StateLog:
    """Appends the events of machines and hands them back when their partition is loaded."""

    def __init__(
        self,
        open_topic: Callable[[], Topic],
        clock: Clock,
        ballast: Ballast,
        *,
        partitions: int,
        snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._snapshot_bytes_min = snapshot_bytes_min
        self._open_topic = open_topic
        self._prepare = prepare
        self._clock = clock
        self._ballast = ballast
        self._is_open = False
        self._parts = [LoadedPart() for _ in range(partitions)]
        self._homes: dict[str, int] = {}
        """Where homes were found to be: working it out takes as long as encoding a change."""

    def __repr__(self) -> str:
        return f"<StateLog of {sum(len(part.traces) for part in self._parts)} machines>"

    # Partitions.

    def start(self, topic: Topic | None) -> None:
        """Take the topic, if there is one already."""
        if topic is not None:
            self._attach(topic)
            self._ballast.take()

    @property
    def partitions(self) -> range:
        """The numbers of the partitions."""
        return range(len(self._parts))

    @property
    def is_whole(self) -> bool:
        """Return True if every partition is loaded."""
        return all(part.is_loaded for part in self._parts)

    @property
    def parts(self) -> Sequence[StatePart]:
        """Everything that a start loads."""
        return self.partitions

    def load(self, part: StatePart) -> None:
        """Read what a part has; its machines may be hosted from now on."""
        self._part(part).load()

    def unload(self, part: StatePart) -> None:
        """Take no more changes of a part and forget what was read of it."""
        known = self._part(part)
        known.is_loaded = False
        known.traces = {}

    async def drain(self, part: StatePart) -> None:
        """Return when everything written to a part is durable, or never will be."""
        log = self._part(part).log
        if log is not None:
            await asyncio.wait([log.durable()])

    def _part(self, part: StatePart) -> LoadedPart:
        assert isinstance(part, int), "of the topic"
        return self._parts[part]

    def partition_of(self, home: str) -> int:
        """Return which partition holds the machines of a home."""
        known = self._homes.get(home)
        if known is None:
            if len(self._homes) >= HOMES_KEPT_MAX:
                self._homes.clear()
            known = partition_of_key(home.encode(), len(self._parts))
            self._homes[home] = known
        return known

    def check(self, home: str) -> None:
        """Raise unless the machines of a home are loaded."""
        self._at(home)

    def forget_topic(self, topic: Topic) -> None:
        """Let be: what is kept of a topic that is gone is forgotten by those who keep it."""

    def epoch_of(self, home: str) -> int:
        """Return the leader epoch of what a home is kept in, or raise if it is not loaded."""
        log = self._at(home).log
        return 0 if log is None else int(log.leadership.epoch)

    # Where decisions about messages are kept: with their owner, whatever their partition is.

    is_beside = False

    def home_of(self, owner: str, place: TopicPartition) -> str:  # noqa: ARG002 - elsewhere it counts
        """Return the home of what an owner decides about the messages of a partition."""
        return owner

    def is_in(self, home: str, part: StatePart) -> bool:
        """Return True if a part holds the machines of a home."""
        return self.partition_of(home) == part

    def is_loaded(self, place: TopicPartition) -> bool:  # noqa: ARG002
        """Return True: whoever has the owner decides about every partition."""
        return True

    def check_owner(self, owner: str) -> None:
        """Raise if what an owner decided about messages may be there and is not loaded."""
        self._at(owner)

    def check_places(self, owner: str, parts: Iterable[Placed]) -> None:  # noqa: ARG002
        """Raise unless what an owner decides about messages of partitions is loaded."""
        self._at(owner)

    def check_place(self, place: TopicPartition) -> None:  # noqa: ARG002
        """Raise unless what any owner decides about messages of a partition is loaded."""
        if not self.is_whole:
            raise NotCoordinatorError("the lease may be one that is not loaded here; ask again")

    def durable_at(self, owner: str, parts: Iterable[Placed]) -> asyncio.Future[None]:  # noqa: ARG002
        """Return a future that is done when what an owner decided there is durable."""
        return self.durable(owner)

    async def settle_at(self, owner: str, parts: Iterable[Placed], *, is_alone: bool) -> None:  # noqa: ARG002
        """Return when what an owner decided there is durable.

        Who asks for one thing at a time has it synced at once, where nobody else waits. Of those
        who ask for the next meanwhile, several share a sync.
        """
        await self._settle(self._log_of(self._at(owner)), is_alone=is_alone)

    @staticmethod
    async def _settle(partition: Partition, *, is_alone: bool) -> None:
        if not (is_alone and partition.sync_at_once()):
            await partition.committed()

    # Finding.

    def _at(self, home: str) -> LoadedPart:
        known = self._homes.get(home)
        part = self._parts[self.partition_of(home) if known is None else known]
        if not part.is_loaded:
            raise NotCoordinatorError("the state of this is not loaded here; ask again")
        return part

    def _log_of(self, part: LoadedPart) -> Partition:
        if part.log is None:
            self._attach(self._open_topic())
            self._ballast.take()
        assert part.log is not None, "the topic has all partitions"
        return part.log

    def _attach(self, topic: Topic) -> None:
        """Use the partitions of a topic; how many there are was decided when it was made."""
        self._is_open = True
        count = len(topic.partitions)
        if count != len(self._parts):
            self._parts = [LoadedPart() for _ in topic.partitions]
            self._homes.clear()
        for part, log_of in zip(self._parts, topic.partitions, strict=True):
            part.log = log_of

    # Reading.

    def keys(self, prefix: str, part: StatePart) -> list[str]:
        """Return the keys of the machines of a part that begin so, in order."""
        return sorted(key for key in self._part(part).traces if key.startswith(prefix))

    def replay(
        self,
        key: str,
        kind: Any,  # noqa: ANN401 - a union is no type
        *,
        home: str,
        past_damage: bool = False,
    ) -> list[Any]:
        """Return what happened to a machine, in order, and keep it no longer.

        Behind a change that is missing, the others count only where each stands for itself.
        """
        trace = self._at(home).traces.get(key)
        if trace is None:
            return []
        decode = msgspec.msgpack.Decoder(list[kind]).decode
        events: list[Any] = (
            decode(unpack_snapshot(trace.snapshot[NUMBER.size :])) if trace.snapshot else []
        )
        for number in range(trace.snapshot_number, trace.number):
            change = trace.changes.get(number)
            if change is None:
                log.error(
                    LogEvent.STATE_INCOMPLETE,
                    machine=key,
                    first_missing=number,
                    dropped=1 if past_damage else trace.number - number,
                )
                # What follows could not be told from the missing ones: the next change begins anew.
                trace.is_damaged = True
                if past_damage:
                    continue
                break
            events += decode(memoryview(change)[NUMBER.size :])
        trace.changes.clear()
        trace.snapshot = None
        return events

    def note_damage(self, key: str, *, home: str) -> None:
        """Let the next change of a machine start with a snapshot."""
        trace = self._at(home).traces.get(key)
        if trace is not None:
            trace.is_damaged = True

    @property
    def is_open(self) -> bool:
        """Return True if there is a topic to write to."""
        return self._is_open

    async def prepare(self) -> None:
        """Make the topic without keeping others waiting; a write would do it at once."""
        if self._prepare is not None:
            await self._prepare()
        if not self._is_open:
            self._attach(self._open_topic())

    # Changing.

    def durable(self, home: str) -> asyncio.Future[None]:
        """Return a future that is done when everything written for a home is durable."""
        return self._log_of(self._at(home)).committed()

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
        part = self._at(home)
        trace = part.traces.get(key) or Trace()
        rows: list[tuple[bytes, bytes]] = []
        stored: bytes | None = None
        if trace.is_due(self._snapshot_bytes_min):
            stored = pack_snapshot(_encode(list(snapshot())))
            rows.append((key.encode(), NUMBER.pack(trace.number) + stored))
        change = _encode(events)
        rows.append(change_row(key, trace.number, change))
        partition = part.log or self._log_of(part)
        try:
            append_own(partition, rows, timestamp_ns=self._now_ns())
        except DiskFullError as error:
            self._append_again(partition, rows, error)
        part.traces[key] = trace
        if stored is not None:
            trace.snapshot_number = trace.number
            trace.snapshot_bytes = len(stored)
            trace.bytes_since = 0
            trace.is_damaged = False
        trace.number += 1
        trace.bytes_since += len(change)

    def write_changes(
        self, changes: Sequence[tuple[str, Sequence[msgspec.Struct]]], *, home: str
    ) -> None:
        """Write the events of machines of one home, in order and in one write.

        None of them may be due for a snapshot: see ``has_room``.
        """
        part = self._at(home)
        rows: list[tuple[bytes, bytes]] = []
        noted: list[tuple[Trace, int]] = []
        for key, events in changes:
            trace = part.traces[key]
            number = trace.number + sum([earlier is trace for earlier, _ in noted])
            change = _encode(events)
            rows.append(change_row(key, number, change))
            noted.append((trace, len(change)))
        partition = part.log or self._log_of(part)
        try:
            append_own(partition, rows, timestamp_ns=self._now_ns())
        except DiskFullError as error:
            self._append_again(partition, rows, error)
        for trace, size in noted:
            trace.number += 1
            trace.bytes_since += size

    def has_room(self, key: str, *, home: str) -> bool:
        """Return True if a few small changes of a machine can be written without a snapshot."""
        trace = self._at(home).traces.get(key)
        return trace is not None and trace.has_room(self._snapshot_bytes_min)

    def is_snapshot_due(self, key: str, *, home: str) -> bool:
        """Return True if the next write of a machine begins with a snapshot of it."""
        trace = self._at(home).traces.get(key)
        return trace is not None and trace.is_due(self._snapshot_bytes_min)

    def forget(self, key: str, *, home: str) -> asyncio.Future[None]:
        """Write that a machine is gone; the future is done when that is durable."""
        part = self._at(home)
        trace = part.traces.get(key)
        if trace is None:
            done = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        partition = self._log_of(part)
        rows = end_rows(key, trace, now_ms=self._clock.now_ms())
        try:
            partition.append(rows, is_own=True)
        except DiskFullError:
            if not self.make_room():
                raise
            partition.append(rows, is_own=True)
        del part.traces[key]
        return partition.committed()

    def make_room(self) -> bool:
        """Give up the room that is kept for state; return whether there was any."""
        return self._ballast.give_up()

    def _append_again(
        self, partition: Partition, rows: Sequence[tuple[bytes, bytes]], error: DiskFullError
    ) -> None:
        """Append in the room that is kept for a full disk; without any, raise the error."""
        if not self.make_room():
            raise error
        append_own(partition, rows, timestamp_ns=self._now_ns())

    def _now_ns(self) -> int:
        return self._clock.now_ms() * NS_PER_MS
