"""Answering readers: frames from several partitions at once, waiting a while for news."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import GoQueueError
from goqueue.base.fast_path import fast_path
from goqueue.base.grant import Grant
from goqueue.base.ids import NO_EPOCH, Offset, PartitionId
from goqueue.base.limits import HIDDEN_RANGES_MAX
from goqueue.base.units import KiB
from goqueue.core.record.hole import empty_offsets
from goqueue.runtime.log.isolation import PLAIN, Isolation, hidden_ranges, look, ranges_of
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.turns import TURN_MESSAGES
from goqueue.storage.log_notes import Gap
from goqueue.storage.log_reader import Extent, Piece


class FetchPart(msgspec.Struct, frozen=True, kw_only=True):
    """One partition a reader asks for, from an offset up to an optional end."""

    partition: int
    offset: int
    end_offset: int | None = None
    epoch: int = NO_EPOCH
    """The epoch of the message before the offset, where the reader knows it."""


class VisibleExtent(NamedTuple):
    """Where frames lie, and what of them a reader leaves out because it was aborted."""

    extent: Extent
    aborted: list[Gap]


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What one partition had: frames as stored, where to go on, and the range there is.

    ``hidden`` are offsets left out because they are delayed or were cancelled. With ``extents``
    the frames are to be read there.
    """

    partition: PartitionId
    frames: memoryview
    next_offset: Offset
    start_offset: Offset
    end_offset: Offset
    gaps: tuple[Gap, ...] = ()
    hidden: tuple[Gap, ...] = ()
    extents: tuple[VisibleExtent, ...] = ()
    epoch: int = NO_EPOCH
    """The epoch of the message before ``next_offset``."""
    taken_back: Gap | None = None
    """What the reader has seen and this log does not have; it goes on at its start."""

    @property
    def size(self) -> int:
        """Return how many bytes the frames have, wherever they are."""
        return len(self.frames) + sum([found.extent.size for found in self.extents])


Outcome = Fetched | GoQueueError

EXTENT_BYTES_MIN: Final = 256 * KiB
"""Less is read here: opening a file and reading it elsewhere costs more than to send it."""

WORTH_FRACTION: Final = 4
"""The part of a reply that must be left for another partition to be read as well."""


class Room(Protocol):
    """Memory for what is read, asked for when there is something to read."""

    @property
    def is_free(self) -> bool:
        """Whether ``take`` would return without waiting."""
        ...

    async def turn(self) -> None:
        """Return when it is the caller's turn to read much."""
        ...

    async def take(self, wanted: int) -> int:
        """Return how many bytes may be read, ``wanted`` at most."""
        ...

    def keep(self, size: int) -> None:
        """Hold just so many bytes from now on."""
        ...


class _NoBudget:
    """All the room in the world."""

    is_free = True

    async def turn(self) -> None:
        pass

    async def take(self, wanted: int) -> int:
        return wanted

    def keep(self, size: int) -> None:
        pass


BOUNDLESS: Final = _NoBudget()


class _FetchRequest(NamedTuple):
    """One request."""

    topic: Topic
    parts: Sequence[FetchPart]
    bytes_max: int
    room: Room
    lens: Isolation
    in_place: int


async def fetch(
    grant: Grant,
    topic: Topic,
    parts: Sequence[FetchPart],
    *,
    bytes_max: int,
    wait_ms: int,
    room: Room = BOUNDLESS,
    lens: Isolation = PLAIN,
    in_place: int = 0,
) -> list[Outcome]:
    """Return what each partition has; wait up to ``wait_ms`` while none has anything to say.

    Who can read ``in_place``, so much at a time, is told where much lies that can be had as it is.
    """
    assert grant.deed is Deed.FETCH, "a grant to fetch"
    started = time.perf_counter()
    # What of a compacted topic is counted as read must be looked at.
    in_place = 0 if topic.settings.is_compacted else in_place
    asking = _FetchRequest(topic, parts, bytes_max, room, lens, in_place)
    outcomes = await _fetch_all(asking)
    if wait_ms > 0 and not _have_news(asking, outcomes):
        outcomes = await _wait(asking, wait_ms=wait_ms)
    else:
        topic.meter.fetch_seconds.observe(time.perf_counter() - started)
    for outcome, part in zip(outcomes, parts, strict=True):
        if isinstance(outcome, Fetched) and outcome.size:
            without = sum(end - start for start, end in outcome.hidden)
            if topic.settings.is_compacted:
                without += empty_offsets(outcome.frames, start_offset=part.offset)
            topic.meter.consumed.inc(max(outcome.next_offset - part.offset - without, 0))
            topic.meter.consumed_bytes.inc(outcome.size)
    return outcomes


async def _wait(asking: _FetchRequest, *, wait_ms: int) -> list[Outcome]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1_000
    partitions = [asking.topic.partition(part.partition) for part in asking.parts]
    while True:
        watches = [(partition, partition.watch()) for partition in partitions]
        try:
            outcomes = await _fetch_all(asking)
            left = deadline - loop.time()
            is_over = left <= 0 or not all(partition.is_waited_for for partition in partitions)
            if is_over or _have_news(asking, outcomes):
                return outcomes
            await asyncio.wait(
                [watch for _, watch in watches],
                timeout=left,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for partition, watch in watches:
                partition.unwatch(watch)


async def _fetch_all(asking: _FetchRequest) -> list[Outcome]:
    outcomes: list[Outcome] = []
    if _is_much(asking):
        await asking.room.turn()
    left = granted = await asking.room.take(asking.bytes_max)
    ranges_left = HIDDEN_RANGES_MAX
    for part in asking.parts:
        try:
            partition = asking.topic.partition(part.partition)
            # A small rest is not worth a read: who got nothing is asked for first next time.
            share = left if left == granted or left >= granted // WORTH_FRACTION else 0
            fetched = await _fetch_one(asking, partition, part, share, ranges_left)
        except GoQueueError as error:
            outcomes.append(error)
            continue
        left -= fetched.size
        ranges_left = max(ranges_left - len(fetched.hidden), 1)
        outcomes.append(fetched)
    held = sum(_memory(outcome) for outcome in outcomes if isinstance(outcome, Fetched))
    asking.room.keep(held)
    return outcomes


def _is_much(asking: _FetchRequest) -> bool:
    """Return True if so much lies there that reading it keeps others waiting."""
    partitions = asking.topic.partitions
    for part in asking.parts:
        known = part.partition < len(partitions)
        if known and partitions[part.partition].visible_offset - part.offset > TURN_MESSAGES:
            return True
    return False


async def _fetch_one(
    asking: _FetchRequest, partition: Partition, part: FetchPart, bytes_max: int, ranges_max: int
) -> Fetched:
    offset = Offset(part.offset)
    if part.epoch > NO_EPOCH and (gap := _taken_back(partition, part)) is not None:
        return gap
    partition.check_offset(offset)
    stop = asking.lens.end_of(partition)
    end = stop if part.end_offset is None else Offset(min(stop, part.end_offset))
    piece = Piece(memoryview(b""), offset)
    extents: tuple[VisibleExtent, ...] = ()
    if offset < end and bytes_max > 0:
        if asking.in_place:
            extents = _extents(asking, partition, offset, end, bytes_max)
            bytes_max = min(bytes_max, asking.in_place)
        if extents:
            piece = Piece(piece.frames, extents[-1].extent.next_offset)
        else:
            piece = await partition.read(offset, end_offset=end, bytes_max=bytes_max)
    sight = look(partition.queue, piece, offset, asking.lens, ranges_max=ranges_max)
    return Fetched(
        partition=partition.name.partition,
        frames=sight.frames,
        next_offset=sight.next_offset,
        start_offset=partition.log.start_offset,
        end_offset=partition.visible_offset,
        gaps=piece.gaps,
        hidden=sight.hidden,
        extents=extents,
        epoch=partition.leadership.last_epoch(sight.next_offset),
    )


def _taken_back(partition: Partition, part: FetchPart) -> Fetched | None:
    """Return what to say to a reader that has seen messages which this log does not have."""
    leadership = partition.leadership
    leadership.check_led()
    gap = leadership.taken_back(Offset(part.offset), part.epoch)
    if gap is None:
        return None
    return Fetched(
        partition=partition.name.partition,
        frames=memoryview(b""),
        next_offset=gap.start_offset,
        start_offset=partition.log.start_offset,
        end_offset=partition.visible_offset,
        epoch=leadership.last_epoch(gap.start_offset),
        taken_back=gap,
    )


@fast_path(of="Partition.read", bench="read", test="tests/client/test_in_place.py")
def _extents(
    asking: _FetchRequest, partition: Partition, offset: Offset, end: Offset, bytes_max: int
) -> tuple[VisibleExtent, ...]:
    """Return where frames lie, as long as they are worth it and nothing in them is hidden.

    What was aborted is told instead: whoever reads a file has it in his hands in any case.
    """
    found: list[VisibleExtent] = []
    while offset < end and bytes_max >= asking.in_place:
        extent = partition.reader.extent(offset, end_offset=end, bytes_max=asking.in_place)
        if extent.size < EXTENT_BYTES_MIN or extent.file.handle is None:
            break
        first = extent.first_offset
        hidden, aborted = hidden_ranges(partition.queue, first, extent.next_offset, asking.lens)
        ranges = [] if aborted is None else ranges_of(aborted, first)
        if hidden is not None or len(ranges) > HIDDEN_RANGES_MAX:
            break
        found.append(VisibleExtent(extent, ranges))
        offset = extent.next_offset
        bytes_max -= extent.size
    return tuple(found)


def _memory(fetched: Fetched) -> int:
    """Return what keeping the frames costs: all that was read together with them stays, too."""
    return memoryview(fetched.frames.obj).nbytes


def _have_news(asking: _FetchRequest, outcomes: Sequence[Outcome]) -> bool:
    return any(map(_has_news, asking.parts, outcomes))


def _has_news(part: FetchPart, outcome: Outcome) -> bool:
    if isinstance(outcome, GoQueueError):
        return True
    # Where everything was left out there are no frames, but the reader gets on.
    is_news = outcome.next_offset > part.offset or bool(outcome.gaps)
    return is_news or outcome.taken_back is not None
