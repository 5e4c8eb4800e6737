"""Putting good frames in the place of damaged ones: one segment at a time, while it is read.

The frames come from another replica, are checked here, and are written into a new segment that
takes the place of the old one by a swap, as a compacted one does. Reading and writing happen in a
thread, the swap and what the partition learns of the frames in one step in the loop.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from goqueue.base.errors import CorruptFrameError, GoQueueError
from goqueue.base.ids import Offset, Position
from goqueue.core.log.scan import Span, Walk
from goqueue.core.record.batch import batch_fields
from goqueue.core.record.control import Control, read_control
from goqueue.runtime.log.partition import Partition
from goqueue.storage.disk import Disk
from goqueue.storage.log_notes import Gap
from goqueue.storage.segment import Segment
from goqueue.storage.segment_repair import (
    Damage,
    Patch,
    SegmentPlace,
    inspect,
    write_repaired,
)
from goqueue.storage.swap import forget_swap, remove_cleaned

T = TypeVar("T")

_START: Final = Position(0)

Fetch = Callable[[Gap], Awaitable[bytes]]
"""Returns checked frames that begin where a gap does, as many as any replica has."""

NoteFrames = Callable[[memoryview, list[Span]], None]
"""Takes frames of the log that the partition did not know."""


class Mended(NamedTuple):
    """What a repair of a segment has brought, and what is still missing."""

    repaired: tuple[Gap, ...] = ()
    left: tuple[Gap, ...] = ()


class SegmentMender:
    """Repairs segments of the logs of one broker. Nothing else rewrites a log meanwhile."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def mend(
        self, partition: Partition, offset: Offset, fetch: Fetch, note: NoteFrames
    ) -> Mended:
        """Repair all damage in the segment of an offset, as far as there are frames for it."""
        async with partition.rewriting:
            partition.check_open()
            segment = partition.log.segment_of(offset)
            if segment is partition.log.segments[-1]:
                # Only what is not written to any more can be written anew.
                await partition.roll()
                segment = partition.log.segment_of(offset)
            place = SegmentPlace(
                partition.log.directory,
                segment.base_offset,
                partition.log.end_of(segment),
                segment.size,
            )
            damages = await elsewhere(partial(inspect, self._disk, place))
            patches = [await _patch(damage, fetch) for damage in damages]
            found = [patch for patch in patches if patch.is_whole or patch.frames]
            if found:
                await self._replace(partition, segment, place, found, note)
            repaired = [Gap(one.damage.start_offset, one.next_offset) for one in found]
            left = [
                Gap(one.next_offset, one.damage.end_offset) for one in patches if not one.is_whole
            ]
            for gap in repaired:
                partition.log.recovery.mended(gap)
            if not damages:
                partition.log.recovery.mended(Gap(place.base_offset, place.end_offset))
            return Mended(tuple(repaired), tuple(left))

    async def _replace(
        self,
        partition: Partition,
        segment: Segment,
        place: SegmentPlace,
        patches: list[Patch],
        note: NoteFrames,
    ) -> None:
        unknown = [one for one in patches if _is_unknown(partition, one)]
        ends = await elsewhere(partial(self._later_ends, partition, unknown))
        partition.log.finish_swap()
        try:
            swap = await elsewhere(partial(write_repaired, self._disk, place, patches))
            # From here on no await.
            _check_there(partition, segment)
            partition.log.replace(swap)
        except BaseException:
            with contextlib.suppress(GoQueueError, OSError):
                remove_cleaned(self._disk, place.directory)
            raise
        for patch in unknown:
            frames = memoryview(patch.frames)
            note(frames, list(Walk(frames)))
            partition.snapshots.now_known(Gap(patch.damage.start_offset, patch.next_offset))
        for control in ends:
            partition.queue.end_transaction(control)
        partition.wake()
        await elsewhere(partial(forget_swap, self._disk, place.directory))

    def _later_ends(self, partition: Partition, patches: list[Patch]) -> list[Control]:
        """Return the ends of transactions behind damage that hid some of their messages.

        One that is open here is open still; of the others the log has the end further on.
        """
        wanted = {number for patch in patches for number in _transactions(patch)}
        wanted -= set(partition.queue.tx)
        found: list[Control] = []
        if not wanted:
            return found
        first = patches[0].damage.end_offset
        for base in [one.base_offset for one in partition.log.segments]:
            segment = Segment(self._disk, partition.log.directory, base)
            for header, frame in segment.frames_past_damage(base, _START):
                if header.offset < first:
                    continue
                with contextlib.suppress(CorruptFrameError):
                    control = read_control(header, frame)
                    if control is not None and control.number in wanted:
                        found.append(control)
                        wanted.discard(control.number)
            if not wanted:
                break
        return found


def _check_there(partition: Partition, segment: Segment) -> None:
    """Raise if retention or a change of leader has taken a segment meanwhile."""
    partition.check_open()
    if not partition.log.holds(segment):
        raise GoQueueError(f"{partition.name}: the segment is gone")


async def _patch(damage: Damage, fetch: Fetch) -> Patch:
    """Return what can be had for some damage; nothing at all is an empty patch."""
    gap = Gap(damage.start_offset, damage.end_offset)
    frames = await fetch(gap) if gap.start_offset < gap.end_offset else b""
    reached = gap.start_offset
    for span in Walk(frames):
        reached = span.end_offset
    return Patch(damage, frames, reached)


def _is_unknown(partition: Partition, patch: Patch) -> bool:
    damage = patch.damage
    return any(
        gap.start_offset < damage.end_offset and damage.start_offset < gap.end_offset
        for gap in partition.snapshots.unknown
    )


def _transactions(patch: Patch) -> set[int]:
    frames = memoryview(patch.frames)
    numbers: set[int] = set()
    for span in Walk(frames):
        if span.header.is_batch:
            fields = batch_fields(span.header, frames[span.start : span.end])
            numbers |= {fields.transaction} if fields.transaction else set()
    return numbers


async def elsewhere(work: Callable[[], T]) -> T:
    """Do something that takes long without holding up the loop."""
    try:
        return await asyncio.get_running_loop().run_in_executor(None, work)
    except OSError as error:
        raise GoQueueError(f"the files are gone: {error}") from error
