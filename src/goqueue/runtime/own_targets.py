"""Where a node of a cluster takes its own messages: to the leader of a partition, wherever that is.

The same three questions for a partition that is led here and for one that is led elsewhere: up to
where is it committed, which of these messages are there, append those that are not. All of them may
be asked again, also of the next leader.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import NodeId, Offset, PartitionId, TopicName, TopicPartition
from goqueue.runtime.clock import Clock
from goqueue.runtime.forwarding import FORWARD_SECONDS, Forwarding
from goqueue.runtime.log.own_appends import Fence, OwnAppends, OwnMessage, check_topic
from goqueue.runtime.log.topic import Topic
from goqueue.wire.calls import Call
from goqueue.wire.complaint import HEADER_FAULTS, complaint
from goqueue.wire.own_calls import ABSENT, OwnAppend, OwnAppended
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

_decode_request: Final = msgspec.msgpack.Decoder(OwnAppend).decode
_decode_reply: Final = msgspec.msgpack.Decoder(OwnAppended).decode


class OwnReply(NamedTuple):
    """The answer to a peer."""

    header: Call
    payload: tuple[Buffer, ...] = ()


class OwnTargets:
    """Asks leaders, and answers as one."""

    def __init__(
        self,
        forwarding: Forwarding,
        topics: Mapping[TopicName, Topic],
        appends: OwnAppends,
        *,
        state_topic: str,
    ) -> None:
        self._state_topic = TopicName(state_topic)
        self._forwarding = forwarding
        self._topics = topics
        self._appends = appends

    def __repr__(self) -> str:
        return f"<OwnTargets over {self._forwarding!r}>"

    def state_epoch(self, number: int) -> int:
        """Return the epoch of who leads a partition of names, as far as this node knows."""
        place = TopicPartition(self._state_topic, PartitionId(number))
        return self._forwarding.topology.leader_of(place).epoch

    # Asking.

    async def end_offset(self, place: TopicPartition, fence: Fence) -> Offset:
        """Return an offset that everything appended from now on lies behind, over any failover."""
        return Offset((await self._ask(place, fence, 0, (), ())).end_offset)

    async def find(
        self, place: TopicPartition, fence: Fence, origins: Sequence[bytes], *, from_offset: int
    ) -> dict[bytes, Offset]:
        """Return where messages are, of those that are there."""
        reply = await self._ask(place, fence, from_offset, origins, ())
        return _places(origins, reply)

    async def append(
        self,
        place: TopicPartition,
        fence: Fence,
        messages: Sequence[OwnMessage],
        *,
        from_offset: int,
    ) -> dict[bytes, Offset]:
        """Append messages that are not there; return where all of them are, durably."""
        origins = [one.origin for one in messages]
        frames = [one.frame for one in messages]
        return _places(origins, await self._ask(place, fence, from_offset, origins, frames))

    async def _ask(
        self,
        place: TopicPartition,
        fence: Fence,
        from_offset: int,
        origins: Sequence[bytes],
        frames: Sequence[bytes],
    ) -> OwnAppended:
        topic = self._topics.get(place.topic)
        life = 0 if topic is None else topic.record.created_ms
        call = OwnAppend(
            place.topic,
            place.partition,
            life,
            fence.source,
            fence.epoch,
            from_offset,
            list(origins),
            [len(frame) for frame in frames],
        )
        raw = memoryview(b"".join(frames))

        async def ask(node: NodeId) -> OwnAppended:
            if self._forwarding.is_here(node):
                return await self._serve(call, raw)
            packet = await self._forwarding.topology.request(
                node, PeerOperation.OWN_APPEND, call, [raw], timeout_s=FORWARD_SECONDS
            )
            return _decode_reply(packet.header)

        return await self._forwarding.find(lambda: self._forwarding.leader(place), ask)

    # Answering.

    def handlers(
        self,
    ) -> Mapping[PeerOperation, Callable[[PeerIdentity, Buffer, memoryview], Awaitable[OwnReply]]]:
        """Return what peers may ask."""
        return {PeerOperation.OWN_APPEND: self.answer}

    async def answer(self, _: PeerIdentity, header: Buffer, payload: memoryview) -> OwnReply:
        """Answer a peer that takes messages of its own here, or raise."""
        try:
            call = _decode_request(header)
        except HEADER_FAULTS as error:
            raise InvalidRequestError(f"own_append: {complaint(OwnAppend, error)}") from error
        return OwnReply(await self._serve(call, payload))

    async def _serve(self, call: OwnAppend, payload: memoryview) -> OwnAppended:
        topic = check_topic(self._topics, call.topic, call.life)
        partition = topic.partition(call.partition)
        partition.check_writable()
        self._forwarding.topology.check_live()
        end_offset = partition.committed_offset
        fence = Fence(call.source, call.epoch)
        found: dict[bytes, Offset] = {}
        if call.sizes:
            messages = _messages(call, payload)
            found = await self._appends.append(
                topic, call.partition, fence, messages, from_offset=call.from_offset
            )
        elif call.origins:
            found = await self._appends.find(
                topic, call.partition, fence, call.origins, from_offset=call.from_offset
            )
        return OwnAppended(end_offset, [found.get(one, ABSENT) for one in call.origins])


def own_targets_of(
    forwarding: Forwarding | None,
    topics: Mapping[TopicName, Topic],
    clock: Clock,
    state_topic: str,
) -> OwnTargets | None:
    """Return the leaders of a cluster; None for a broker that leads everything itself."""
    if forwarding is None:
        return None
    return OwnTargets(forwarding, topics, OwnAppends(clock), state_topic=state_topic)


def _messages(call: OwnAppend, payload: memoryview) -> list[OwnMessage]:
    if len(call.sizes) != len(call.origins) or sum(call.sizes) != len(payload):
        raise InvalidRequestError("sizes: they do not fit the origins or the payload")
    messages: list[OwnMessage] = []
    position = 0
    for origin, size in zip(call.origins, call.sizes, strict=True):
        messages.append(OwnMessage(origin, bytes(payload[position : position + size])))
        position += size
    return messages


def _places(origins: Sequence[bytes], reply: OwnAppended) -> dict[bytes, Offset]:
    pairs = zip(origins, reply.offsets, strict=True)
    return {origin: Offset(offset) for origin, offset in pairs if offset != ABSENT}
