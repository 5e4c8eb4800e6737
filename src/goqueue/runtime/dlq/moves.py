"""Moving messages from a ledger's partition into another, once, whatever happens in between.

A move has three steps, each durable before the next: the ledger notes what is going where, and
from which offset of the target on it would be found; the messages are appended there, each with
its identity; the ledger notes that they are gone. A move that was cut short is looked for in the
target, and only what is not there is written again.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError, PartitionNotFoundError, TopicNotFoundError
from goqueue.base.ids import Offset, TopicPartition
from goqueue.base.units import NS_PER_US
from goqueue.core.delivery.events import Event, MoveBegun, Moved
from goqueue.core.delivery.ledger import Ledger
from goqueue.core.delivery.runs import runs_of
from goqueue.core.dlq.names import origin_of
from goqueue.core.offset_sets import each
from goqueue.core.record.check import check_frames
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.origins import find_origins
from goqueue.runtime.log.own_appends import Fence, OwnMessage, slices
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.own_targets import OwnTargets
from goqueue.runtime.tracing.moves import trace_moves


class Hosted(Protocol):
    """A ledger and its journal."""

    @property
    def group(self) -> str:
        """Whose ledger it is."""
        ...

    @property
    def partition(self) -> Partition:
        """Of which partition."""
        ...

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the group or the topic is gone."""
        ...

    def commit(self, events: Sequence[Event], /) -> None:
        """Write events and make them true."""
        ...

    def durable(self) -> asyncio.Future[None]:
        """Return a future that is done when everything committed so far is durable."""
        ...


class MovedMessage(NamedTuple):
    """A message that is to be moved, as it shall be, and where to."""

    offset: Offset
    draft: Draft
    target: TopicPartition


class Delivered(NamedTuple):
    """What was moved, and why the rest was not."""

    offsets: BitMap64
    errors: list[GoQueueError]


class _Bundle:
    """The parcels for one partition, and from where on they would be found there."""

    def __init__(
        self, target: TopicPartition, parcels: Sequence[MovedMessage], from_offset: Offset
    ) -> None:
        self.target = target
        self.parcels = parcels
        self.offsets = BitMap64([parcel.offset for parcel in parcels])
        self.from_offset = from_offset

    def trace(self, hosted: Hosted, moved: BitMap64, reason: str) -> None:
        """Note nothing: the node that took them knows where they are."""

    def begun(self, reason: str) -> MoveBegun:
        """Return the first step."""
        return MoveBegun(
            offsets=runs_of(self.offsets),
            topic=self.target.topic,
            partition=self.target.partition,
            from_offset=self.from_offset,
            reason=reason,
        )


class _Share(_Bundle):
    """The parcels for one partition of this broker."""

    def __init__(self, topic: Topic, partition: Partition, parcels: Sequence[MovedMessage]) -> None:
        super().__init__(partition.name, parcels, partition.log.end_offset)
        self.topic = topic
        self.partition = partition
        self.base_offset = Offset(0)
        self.appended_us = 0

    def trace(self, hosted: Hosted, moved: BitMap64, reason: str) -> None:
        """Note where traced messages are now."""
        source, target = hosted.partition.trace, self.partition.trace
        if source is not None and target is not None:
            there = [
                (parcel.offset, self.base_offset + row, parcel.draft.headers)
                for row, parcel in enumerate(self.parcels)
                if parcel.offset in moved
            ]
            trace_moves(
                source,
                target,
                there,
                at_ns=self.appended_us * NS_PER_US,
                group=hosted.group,
                is_redrive=bool(reason),
            )


class Mover:
    """Moves messages; whoever owns a ledger calls it for one batch at a time."""

    def __init__(
        self, topic: Callable[[str], Topic], clock: Clock, targets: OwnTargets | None = None
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._targets = targets
        """The leaders of a cluster; None where every partition is this broker's."""

    async def move(
        self, hosted: Hosted, parcels: Sequence[MovedMessage], *, reason: str = ""
    ) -> Delivered:
        """Move messages that are neither settled nor leased; a target that fails keeps its own."""
        shares: Sequence[_Bundle]
        if self._targets is None:
            shares, errors = self._share(parcels)
        else:
            shares, errors = await self._bundle(hosted, parcels, self._targets, reason)
        if not shares:
            return Delivered(BitMap64(), errors)
        # The offsets to look behind are those of this very step: nothing awaits in between.
        hosted.commit([share.begun(reason) for share in shares])
        await hosted.durable()
        outcomes = await asyncio.gather(*[self._deliver(hosted, share) for share in shares])
        moved = BitMap64()
        for share, error in zip(shares, outcomes, strict=True):
            if error is not None:
                errors.append(error)
            else:
                here = _still_begun(hosted.ledger, share.offsets, share.target)
                share.trace(hosted, here, reason)
                moved |= here
        await _finish(hosted, moved)
        return Delivered(moved, errors)

    def _share(self, parcels: Sequence[MovedMessage]) -> tuple[list[_Share], list[GoQueueError]]:
        shares: list[_Share] = []
        errors: list[GoQueueError] = []
        for target, own in _by_target(parcels).items():
            try:
                topic = self._topic(target.topic)
                partition = topic.partition(target.partition)
                partition.check_writable()
                topic.check_room()
                shares.append(_Share(topic, partition, own))
            except GoQueueError as error:
                errors.append(error)
        return shares, errors

    async def _bundle(
        self, hosted: Hosted, parcels: Sequence[MovedMessage], targets: OwnTargets, reason: str
    ) -> tuple[list[_Bundle], list[GoQueueError]]:
        """Ask the leaders of the targets from where on messages would be found."""
        by_target = _by_target(parcels)
        fence = fence_of(hosted)
        outcomes = await asyncio.gather(
            *(targets.end_offset(target, fence) for target in by_target), return_exceptions=True
        )
        bundles: list[_Bundle] = []
        errors: list[GoQueueError] = []
        for (target, own), outcome in zip(by_target.items(), outcomes, strict=True):
            if isinstance(outcome, GoQueueError):
                errors.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                # Much may have happened to them while the leader was asked.
                left = [one for one in own if _is_movable(hosted.ledger, one.offset, reason)]
                if left and not hosted.is_closed:
                    bundles.append(_Bundle(target, left, outcome))
        return bundles, errors

    async def _deliver(self, hosted: Hosted, share: _Bundle) -> GoQueueError | None:
        if isinstance(share, _Share):
            return await self._write(share)
        assert self._targets is not None, "bundles are for other nodes"
        name = hosted.partition.name
        messages = [
            OwnMessage(origin_of(hosted.group, name, one.offset), encode_row(one.draft))
            for one in share.parcels
        ]
        try:
            await self._targets.append(
                share.target, fence_of(hosted), messages, from_offset=share.from_offset
            )
        except GoQueueError as error:
            return error
        return None

    async def _write(self, share: _Share) -> GoQueueError | None:
        partition, meter = share.partition, share.topic.meter
        raw = b"".join(encode_row(parcel.draft) for parcel in share.parcels)
        try:
            frames = check_frames(memoryview(raw), now_ms=self._clock.now_ms(), by_broker=True)
            await share.topic.check_fit(frames)
            await partition.make_room(len(raw))
            share.base_offset, share.appended_us = partition.log.end_offset, self._clock.now_us()
            for slice_ in slices(frames):
                # An index entry for each, so that one message is found without reading all.
                partition.append(slice_)
            meter.published.inc(len(frames))
            meter.published_bytes.inc(len(raw))
            meter.count_lanes(frame.lanes or (0, 0, 1, 0, 0) for frame in frames)
            await partition.committed()
        except GoQueueError as error:
            return error
        return None

    async def look(self, hosted: Hosted) -> BitMap64:
        """Find out what became of moves that were cut short; return those nobody can tell of yet.

        What was written is settled. What was not is still in the ledger and may be moved again.
        """
        unknown = BitMap64()
        for target, offsets in _begun(hosted.ledger).items():
            try:
                found = await self._find(hosted, target, offsets)
                await _finish(hosted, found)
            except (TopicNotFoundError, PartitionNotFoundError):
                continue
            except GoQueueError:
                unknown |= offsets
        return unknown

    async def _find(self, hosted: Hosted, target: TopicPartition, offsets: BitMap64) -> BitMap64:
        """Return those of some messages that are in the target."""
        partition = self._topic(target.topic).partition(target.partition)
        dooms = hosted.ledger.dooms
        from_offset = min(
            (dooms[one].from_offset for one in each(offsets) if one in dooms), default=0
        )
        name = hosted.partition.name
        sought = {origin_of(hosted.group, name, Offset(one)): one for one in each(offsets)}
        there: Collection[bytes]
        if self._targets is None:
            there = await find_origins(partition, sought, from_offset=from_offset)
        else:
            there = await self._targets.find(
                target, fence_of(hosted), list(sought), from_offset=from_offset
            )
        found = BitMap64(sought[origin] for origin in there)
        return _still_begun(hosted.ledger, found, target)


async def _finish(hosted: Hosted, moved: BitMap64) -> None:
    """Take the last step."""
    if moved and not hosted.is_closed:
        hosted.commit([Moved(offsets=runs_of(moved))])
        await hosted.durable()


def fence_of(hosted: Hosted) -> Fence:
    """Return in which epoch this node decides about what a ledger moves."""
    name = hosted.partition.name
    source = f"{hosted.group}/{name.topic}/{name.partition}"
    return Fence(source, hosted.partition.leadership.epoch)


def _by_target(parcels: Sequence[MovedMessage]) -> dict[TopicPartition, list[MovedMessage]]:
    found: dict[TopicPartition, list[MovedMessage]] = {}
    for parcel in parcels:
        found.setdefault(parcel.target, []).append(parcel)
    return found


def _is_movable(ledger: Ledger, offset: Offset, reason: str) -> bool:
    """Return True if a message may be moved: what has a reason of its own was not doomed."""
    return not ledger.is_settled(offset) if reason else offset in ledger.dooms


def _begun(ledger: Ledger) -> dict[TopicPartition, BitMap64]:
    """Return by target what may already have been written."""
    found: dict[TopicPartition, BitMap64] = {}
    for offset, doom in ledger.dooms.items():
        if doom.is_begun:
            found.setdefault(doom.target, BitMap64()).add(offset)
    return found


def _still_begun(ledger: Ledger, offsets: BitMap64, target: TopicPartition) -> BitMap64:
    """Return those of some offsets that still go to a target: a group may have begun anew."""
    dooms = ledger.dooms
    return BitMap64(
        offset for offset in each(offsets) if offset in dooms and dooms[offset].target == target
    )
