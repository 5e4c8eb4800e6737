"""Publishing delayed messages that do not want to wait beside others of their name.

Judged for the messages of one request that are really new: repeats of a producer, repeats by
``dedup_id`` and what does not fit a schema replace nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import Offset
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.queue_rows import Conflict
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published

T_contra = TypeVar("T_contra", contravariant=True)


class Waiting(NamedTuple):
    """A message that waits under a name."""

    partition: Partition
    offset: Offset


class DelayNames(Protocol[T_contra]):
    """Whoever knows which messages of a topic wait under a name."""

    async def find(self, topic: T_contra, name: bytes, target: Partition, /) -> list[Waiting]:
        """Return the messages under a name that one of the target partition may replace."""
        ...

    async def hold(
        self, waiting: Iterable[Waiting], *, name: bytes, target: Partition
    ) -> list[Waiting]:
        """Keep messages from being delivered; return those that still waited, durably held."""
        ...

    def release(self, held: Iterable[Waiting]) -> None:
        """Let messages be delivered after all."""
        ...

    async def finish(self, held: Iterable[Waiting]) -> None:
        """Cancel messages whose places were taken, durably."""
        ...

    def finish_later(self, held: Iterable[Waiting]) -> None:
        """Find out what became of a replacement, and end it, as soon as that can be written."""
        ...


class Verdict(NamedTuple):
    """What becomes of the rows of a request, by the names that are taken."""

    refused: Mapping[int, str]
    superseded: Mapping[int, int]
    """Rows that a later row of the same request replaces."""
    held: Sequence[Waiting]


def conflicts_of(frames: Sequence[CheckedFrame]) -> list[Conflict]:
    """Return the rows of a request that do not want to wait beside others of their name."""
    return [
        Conflict(first + one.row, one.name, one.is_replacing)
        for first, frame in _numbered(frames)
        if frame.queue is not None and frame.queue.delays is not None
        for one in frame.queue.delays.conflicts
    ]


def names_of(frames: Sequence[CheckedFrame]) -> dict[int, bytes]:
    """Return the names of the delayed rows of a request."""
    return {
        first + row: name
        for first, frame in _numbered(frames)
        if frame.queue is not None and frame.queue.delays is not None
        for row, name in frame.queue.delays.ids
    }


def _numbered(frames: Sequence[CheckedFrame]) -> Iterator[tuple[int, CheckedFrame]]:
    first = 0
    for frame in frames:
        yield first, frame
        first += frame.rows


async def judge_names(
    names: DelayNames[T_contra],
    topic: T_contra,
    target: Partition,
    frames: Sequence[CheckedFrame],
    left_out: Collection[int],
) -> Verdict:
    """Decide about the rows of a request, and hold what they replace."""
    conflicts = {one.row: one for one in conflicts_of(frames) if one.row not in left_out}
    refused: dict[int, str] = {}
    superseded: dict[int, int] = {}
    waiting: dict[bytes, list[Waiting]] = {}
    earlier: dict[bytes, list[int]] = {}
    """Rows of this request that wait under a name, as far as it was judged."""
    for row, name in sorted(names_of(frames).items()):
        if row in left_out:
            continue
        beside = earlier.setdefault(name, [])
        one = conflicts.get(row)
        if one is not None and name not in waiting:
            waiting[name] = await names.find(topic, name, target)
        if one is not None and one.is_replacing:
            superseded.update(dict.fromkeys(beside, row))
            beside.clear()
        elif one is not None and (beside or waiting[name]):
            refused[row] = f"delay_id: a message waits as {name.decode(errors='replace')!a}"
            continue
        beside.append(row)
    for row, by in sorted(superseded.items(), reverse=True):
        # The row that took its place may have been replaced in turn.
        superseded[row] = superseded.get(by, by)
    replaced = {one.name: waiting[one.name] for one in conflicts.values() if one.is_replacing}
    return Verdict(refused, superseded, await _hold_all(names, replaced, target))


async def _hold_all(
    names: DelayNames[T_contra], replaced: Mapping[bytes, Sequence[Waiting]], target: Partition
) -> list[Waiting]:
    """Hold the messages that wait under some names, or raise and let all of them wait on."""
    held: list[Waiting] = []
    try:
        for name, waiting in replaced.items():
            held += await names.hold(waiting, name=name, target=target)
    except BaseException:
        names.release(held)
        raise
    return held


async def replace(
    names: DelayNames[T_contra],
    held: Sequence[Waiting],
    target: Partition,
    append: Callable[[], Awaitable[Published]],
) -> Published:
    """Append messages that take the places of held ones; return when both are durable."""
    try:
        published = await append()
    except BaseException:
        names.release(held)
        raise
    if held:
        # Who cancels the request does not take back what is in the log.
        await asyncio.shield(asyncio.ensure_future(_finish(names, held, target)))
    return published


async def _finish(names: DelayNames[T_contra], held: Sequence[Waiting], target: Partition) -> None:
    try:
        await target.committed()
    except BaseException:
        names.finish_later(held)
        raise
    try:
        await names.finish(held)
    except GoQueueError:
        # The new messages are committed and the held ones are not delivered: that is the outcome.
        names.finish_later(held)
