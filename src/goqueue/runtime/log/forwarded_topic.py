"""Publishing to a topic some of whose partitions are led by other nodes.

Messages that came one by one (over HTTP, or of the broker's own) are passed on to the leader of
their partition as a native request. Each partition has a lane with a producer of this node: what is
sent again because a leader moved or an answer was lost has the same sequence, so that it is
appended once.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from goqueue.base.errors import GoQueueError, from_code
from goqueue.base.grant import Grant
from goqueue.base.ids import NodeId, Offset, PartitionId, TopicPartition
from goqueue.core.producers.identities import EPOCH_MAX
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.core.record.message import Draft
from goqueue.core.record.queue_rows import DELAY_ID
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import ProducerStamp, Repeat
from goqueue.runtime.forwarding import Forwarding
from goqueue.runtime.log.draft_shares import publish_drafts
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.producer_ids import ProducerIds
from goqueue.runtime.log.published import Published, Reach
from goqueue.wire.calls import Produce, Produced, ProducedPart, ProducePart
from goqueue.wire.packet import Operation

if TYPE_CHECKING:
    from goqueue.runtime.log.topic import Topic

ACKS: Final = "all"
_decode: Final = msgspec.msgpack.Decoder(Produced).decode


class ForwardedTopic:
    """The way into a topic on a node of a cluster, for messages that came one by one."""

    def __init__(self, topic: "Topic", forwarding: Forwarding, ids: ProducerIds) -> None:
        self._topic = topic
        self._forwarding = forwarding
        self._ids = ids
        self._lanes: dict[int, _Lane] = {}

    def __repr__(self) -> str:
        return f"<ForwardedTopic {self._topic.record.name}: {len(self._lanes)} lanes>"

    @property
    def is_all_here(self) -> bool:
        """Return True if this node leads every partition."""
        return all(one.leadership.role is Role.LEADER for one in self._topic.partitions)

    async def publish_drafts(
        self,
        grant: Grant,
        drafts: Sequence[tuple[Draft, int | None]],
        reach: Reach | None = None,
    ) -> list[tuple[PartitionId, Offset] | GoQueueError]:
        """Publish messages by the leaders of their partitions; results are in their order."""
        return await publish_drafts(self, grant, drafts, reach)

    def choose(self, draft: Draft, partition: int | None = None) -> PartitionId:
        """Return the partition of a message, where others of its name are.

        Without a key it is the one of its dedup id or delay id: repeats are seen in one partition.
        """
        if partition is None and draft.key is None:
            name = draft.dedup_id or (draft.headers or {}).get(DELAY_ID)
            if name:
                return partition_of_key(name, len(self._topic.partitions))
        return self._topic.choose(draft, partition)

    async def send(self, grant: Grant, partition: PartitionId, drafts: list[Draft]) -> Published:
        """Publish messages of one partition; return when the ack may go out."""
        if self._topic.partition(partition).leadership.role is Role.LEADER:
            return await self._topic.send(grant, partition, drafts)
        lane = self._lanes.get(partition)
        if lane is None:
            place = TopicPartition(self._topic.record.name, partition)
            lane = self._lanes[partition] = _Lane(place, self._forwarding, self._ids)
        return await lane.publish(grant, drafts, self._topic)


class _Lane:
    """What this node publishes to one partition of another, one request at a time."""

    def __init__(self, place: TopicPartition, forwarding: Forwarding, ids: ProducerIds) -> None:
        self._place = place
        self._forwarding = forwarding
        self._ids = ids
        # Guards the sequence: the next request waits for the outcome of the one before.
        self._turn = asyncio.Lock()
        self._stamp: ProducerStamp | None = None

    async def publish(self, grant: Grant, drafts: list[Draft], topic: "Topic") -> Published:
        async with self._turn:
            stamp = self._stamp or await self._ids.take()
            # Whatever ends this early leaves a sequence in doubt: the next life fences it.
            self._stamp = await self._next_life(stamp)
            frames = memoryview(frame_drafts(drafts, stamp))
            place = self._place

            async def ask(node: NodeId) -> Published:
                if self._forwarding.is_here(node):
                    return await topic.publish(grant, place.partition, frames)
                header = Produce(place.topic, ACKS, [ProducePart(place.partition, len(frames))])
                answer = await self._forwarding.forward(
                    node, grant.caller, Operation.PRODUCE, header, [frames]
                )
                produced = _decode(answer.header)
                (part,) = produced.parts
                return _published(place, part, produced.replicas)

            published = await self._forwarding.find(lambda: self._forwarding.leader(place), ask)
            self._stamp = stamp.after(len(drafts))
            return published

    async def _next_life(self, stamp: ProducerStamp) -> ProducerStamp:
        if stamp.epoch >= EPOCH_MAX:
            return await self._ids.take()
        return self._ids.renew(producer_id=stamp.producer_id, epoch=stamp.epoch)


def _published(place: TopicPartition, part: ProducedPart, replicas: int) -> Published:
    """Return what another node said of the messages of one request, or raise why it refused."""
    if part.failure is not None:
        raise from_code(part.failure.code, part.failure.message)
    return Published(
        partition=PartitionId(place.partition),
        base_offset=Offset(part.base_offset),
        is_duplicate=part.is_duplicate,
        repeats=tuple(
            Repeat(one.row, PartitionId(one.partition), Offset(one.offset)) for one in part.repeats
        ),
        misfits=part.misfits,
        conflicts=frozenset(part.conflicts),
        replicas=replicas,
    )
