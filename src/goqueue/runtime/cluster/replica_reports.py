"""What the leaders of partitions know of them, asked of all nodes: ends, sizes, how far copies are.

Progress is measured at the leader, against what is committed there; what a replica says of itself
counts for nothing.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Final

import msgspec

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NotLeaderError,
)
from goqueue.base.ids import NodeId, PartitionId, TopicId, TopicName, TopicPartition
from goqueue.core.cluster.image import ClusterTopic
from goqueue.core.replication.replica import DATA_LOG
from goqueue.runtime.cluster.image_source import ImageSource
from goqueue.runtime.cluster.links import Handler, Links, PeerReply
from goqueue.runtime.cluster.replica_group import ReplicaGroup
from goqueue.runtime.cluster.replicas import Replicas
from goqueue.wire.complaint import HEADER_FAULTS, complaint
from goqueue.wire.http.reassignment import MoveProgress
from goqueue.wire.move_calls import EndsAsked, EndsFound, PartReport, Reports, ReportsAsked
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation

ASK_SECONDS: Final = 5.0

_decode_ends: Final = msgspec.msgpack.Decoder(EndsAsked).decode
_decode_found: Final = msgspec.msgpack.Decoder(EndsFound).decode
_decode_asked: Final = msgspec.msgpack.Decoder(ReportsAsked).decode
_decode_reports: Final = msgspec.msgpack.Decoder(Reports).decode


class ReplicaReports:
    """Asks the leaders, and answers as one."""

    def __init__(self, replicas: Replicas, source: ImageSource, links: Links) -> None:
        self._replicas = replicas
        self._source = source
        self._links = links

    def __repr__(self) -> str:
        return f"<ReplicaReports of {self._replicas!r}>"

    def handlers(self) -> Mapping[PeerOperation, Handler]:
        """Return what answers the requests of peers."""
        return {
            PeerOperation.PARTITION_ENDS: self._answer_ends,
            PeerOperation.REPLICA_REPORTS: self._answer_reports,
        }

    # Asking.

    async def find_ends(self, topic: ClusterTopic) -> list[int]:
        """Return where the old partitions of a growing topic ended, or raise for a later try."""
        old = topic.history[-2].count
        count = topic.history[-1].count
        by_leader: dict[NodeId, list[int]] = {}
        for number, record in enumerate(topic.partitions[:old]):
            if record.leader_id is None:
                raise LeaderNotAvailableError(f"{topic.name}/{number} has no leader at present")
            by_leader.setdefault(record.leader_id, []).append(number)
        found: dict[int, int] = {}

        async def ask(node: NodeId, numbers: list[int]) -> None:
            call = EndsAsked(topic.name, topic.id, count, numbers)
            if node == self._replicas.node:
                reply = await self._ends(call)
            else:
                packet = await self._links.request(
                    node, PeerOperation.PARTITION_ENDS, call, timeout_s=ASK_SECONDS
                )
                reply = _decode_found(packet.header)
            found.update(zip(numbers, reply.ends, strict=True))

        await _all(ask(node, numbers) for node, numbers in by_leader.items())
        return [found[number] for number in range(old)]

    async def gather(self, *, is_moving: bool) -> list[PartReport]:
        """Return how partitions stand; those of nodes that do not answer are missing."""
        found: list[PartReport] = []

        async def ask(node: NodeId) -> None:
            call = ReportsAsked(is_moving)
            if node == self._replicas.node:
                found.extend(self._reports(call).parts)
                return
            try:
                packet = await self._links.request(
                    node, PeerOperation.REPLICA_REPORTS, call, timeout_s=ASK_SECONDS
                )
                found.extend(_decode_reports(packet.header).parts)
            except GoQueueError:
                return

        nodes = [one.id for one in self._source.image.nodes.values() if not one.is_fenced]
        await _all(ask(node) for node in nodes)
        return found

    async def progress(self) -> dict[tuple[TopicId, int], MoveProgress]:
        """Return how far the partitions are that move."""
        image = self._source.image
        return {
            (image.topic(one.topic).id, one.partition): MoveProgress(
                high_watermark_start=0,
                high_watermark=one.high_watermark,
                durable_offsets={NodeId(node): end for node, end in one.durable.items()},
                copied_bytes=one.copied_bytes,
            )
            for one in await self.gather(is_moving=True)
            if TopicName(one.topic) in image.catalog.topics
        }

    async def sizes(self) -> dict[tuple[TopicName, int], int]:
        """Return how large partitions are."""
        found = await self.gather(is_moving=False)
        return {(TopicName(one.topic), one.partition): one.size_bytes for one in found}

    # Answering.

    async def _answer_ends(self, _: PeerIdentity, header: Buffer, __: memoryview) -> PeerReply:
        try:
            call = _decode_ends(header)
        except HEADER_FAULTS as error:
            raise InvalidRequestError(f"partition_ends: {complaint(EndsAsked, error)}") from error
        return PeerReply(await self._ends(call))

    async def _ends(self, call: EndsAsked) -> EndsFound:
        self._replicas.check_live()
        topic = self._replicas.topics.find(TopicId(call.topic_id))
        if topic is None or len(topic.partitions) < call.count:
            raise LeaderNotAvailableError(f"{call.topic} has no {call.count} partitions here yet")
        places = [TopicPartition(topic.record.name, PartitionId(one)) for one in call.partitions]
        groups = [self._led(place) for place in places]
        # From this step on nothing comes that was hashed with the old number.
        ends = [topic.partitions[place.partition].log.end_offset for place in places]
        await asyncio.gather(*(topic.partitions[one.partition].committed() for one in places))
        if any(self._led(place) is not group for place, group in zip(places, groups, strict=True)):
            raise NotLeaderError("another node leads one of the partitions now")
        return EndsFound(list(ends))

    def _led(self, place: TopicPartition) -> ReplicaGroup:
        group = self._replicas.groups.get(place)
        if group is None or not group.is_leading:
            raise NotLeaderError(f"{self._replicas.node} does not lead {place}")
        return group

    async def _answer_reports(self, _: PeerIdentity, header: Buffer, __: memoryview) -> PeerReply:
        try:
            call = _decode_asked(header)
        except HEADER_FAULTS as error:
            raise InvalidRequestError(f"reports: {complaint(ReportsAsked, error)}") from error
        return PeerReply(self._reports(call))

    def _reports(self, call: ReportsAsked) -> Reports:
        return Reports(
            [
                self._report(place, group)
                for place, group in self._replicas.groups.items()
                if group.leader is not None and (group.leader.state.adding or not call.is_moving)
            ]
        )

    def _report(self, place: TopicPartition, group: ReplicaGroup) -> PartReport:
        leader = group.leader
        assert leader is not None, "looked for"
        partition = group.logs[DATA_LOG].partition
        return PartReport(
            place.topic,
            place.partition,
            0 if partition is None else partition.log.size_bytes,
            leader.logs[DATA_LOG].high_watermark,
            self._replicas.copied_bytes(place),
            leader.durable_offsets(DATA_LOG),
        )


async def _all(asked: Iterable[Awaitable[None]]) -> None:
    """Wait for all, then raise what the first of them raised."""
    results = await asyncio.gather(*asked, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
