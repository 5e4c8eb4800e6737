"""Messages of brokers' own that this node appends to partitions it leads, each of them once.

A broker that moves a message asks for it by its identity. Whether it is there is looked up and, if
it is not, it is appended, with nothing of the kind in between: a request that comes late, twice or
from a node that was replaced meanwhile appends nothing again. A node that asks in a newer epoch of
what it decides about shuts out those of earlier ones.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from goqueue.base.errors import InvalidRequestError, StaleEpochError, TopicNotFoundError
from goqueue.base.ids import Offset, TopicName, TopicPartition
from goqueue.base.units import KiB
from goqueue.core.record.check import CheckedFrame, check_frames
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.origins import find_origins
from goqueue.runtime.log.topic import Topic

SLICE_BYTES: Final = 16 * KiB
FENCES_MAX: Final = 10_000
"""Sources whose epochs are remembered; then all are forgotten, and memory stays bounded."""


class Fence(NamedTuple):
    """What messages come from, and the epoch in which the asking node decides about it."""

    source: str
    epoch: int


class OwnMessage(NamedTuple):
    """A message of a broker's own: its identity and its frame."""

    origin: bytes
    frame: bytes


class OwnAppends:
    """Looks for and appends messages of brokers' own. Runs in the event loop of the leader."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fences: dict[str, int] = {}
        # Each guards one partition: between looking and appending no other one appends.
        self._turns: dict[TopicPartition, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<OwnAppends: {len(self._fences)} sources>"

    async def find(
        self, topic: Topic, number: int, fence: Fence, origins: Sequence[bytes], *, from_offset: int
    ) -> dict[bytes, Offset]:
        """Return where messages are that were appended; none of an earlier epoch will be."""
        partition = topic.partition(number)
        self._check(fence)
        async with self._turn(partition.name):
            return await find_origins(partition, origins, from_offset=from_offset)

    async def append(
        self,
        topic: Topic,
        number: int,
        fence: Fence,
        messages: Sequence[OwnMessage],
        *,
        from_offset: int,
    ) -> dict[bytes, Offset]:
        """Append those messages that are not there; return where all are, when it is durable."""
        partition = topic.partition(number)
        partition.check_writable()
        topic.check_room()
        self._check(fence)
        async with self._turn(partition.name):
            origins = [one.origin for one in messages]
            found = await find_origins(partition, origins, from_offset=from_offset)
            missing = [one for one in messages if one.origin not in found]
            if not missing:
                return found
            raw = b"".join(one.frame for one in missing)
            frames = check_frames(memoryview(raw), now_ms=self._clock.latest_ms(), by_broker=True)
            if len(frames) != len(missing):
                raise InvalidRequestError("a message of a broker's own is a frame of its own")
            await topic.check_fit(frames)
            await partition.make_room(len(raw))
            self._check(fence)
            # No await from here on: what is appended follows one another.
            offset = partition.log.end_offset
            for part in slices(frames):
                # An index entry for each, so that one message is found without reading all.
                partition.append(part)
            for message in missing:
                found[message.origin] = offset
                offset = Offset(offset + 1)
            _count(topic, frames, len(raw))
            await partition.committed()
            return found

    def _turn(self, place: TopicPartition) -> asyncio.Lock:
        turn = self._turns.get(place)
        if turn is None:
            turn = self._turns[place] = asyncio.Lock()
        return turn

    def _check(self, fence: Fence) -> None:
        """Refuse a node that does not decide about a source any more; remember who does."""
        known = self._fences.get(fence.source, 0)
        if fence.epoch < known:
            raise StaleEpochError(
                f"{fence.source} is decided about in epoch {known}, not in {fence.epoch}"
            )
        if fence.epoch > known:
            if len(self._fences) >= FENCES_MAX:
                self._fences.clear()
            self._fences[fence.source] = fence.epoch


def check_topic(topics: Mapping[TopicName, Topic], name: str, life: int) -> Topic:
    """Return the topic that is meant, or raise: one that was made anew is another."""
    topic = topics.get(TopicName(name))
    if topic is None or topic.record.created_ms != life:
        raise TopicNotFoundError(f"topic not found: {name}")
    return topic


def slices(frames: Sequence[CheckedFrame]) -> Iterable[list[CheckedFrame]]:
    """Cut frames into writes that are not too large."""
    part: list[CheckedFrame] = []
    size = 0
    for frame in frames:
        part.append(frame)
        size += len(frame.frame)
        if size >= SLICE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _count(topic: Topic, frames: Sequence[CheckedFrame], size: int) -> None:
    meter = topic.meter
    meter.published.inc(len(frames))
    meter.published_bytes.inc(size)
    meter.count_lanes(frame.lanes or (0, 0, 1, 0, 0) for frame in frames)
