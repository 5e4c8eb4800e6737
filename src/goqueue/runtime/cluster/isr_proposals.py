"""Proposing changes of the replicas in sync: those of all partitions that are due go together."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

from goqueue.base.cluster_limits import ALTERED_PARTITIONS_MAX
from goqueue.base.errors import GoQueueError, NotLeaderError, StaleEpochError
from goqueue.base.ids import Epoch, NodeId, PartitionId, TopicId, TopicPartition
from goqueue.core.cluster.commands import AlterPartitions, InSyncMember, PartIsr
from goqueue.core.cluster.image import ClusterImage, ClusterTopic
from goqueue.core.cluster.records import PartitionRecord, members_of
from goqueue.core.cluster.replies import OK, PartOutcome, PartsReply
from goqueue.core.replication.leader import ProposeIsr
from goqueue.core.replication.replica import AlterOutcome, IsrAnswer, ReplicaSet
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.image_source import ImageSource, Propose

log = get_logger("goqueue.replicas")

Answered = Callable[[TopicPartition, IsrAnswer], None]


def replica_set(topic: ClusterTopic, record: PartitionRecord) -> ReplicaSet:
    """Return a partition of the image as replication knows it."""
    return ReplicaSet(
        epoch=Epoch(record.leader_epoch),
        partition_epoch=record.partition_epoch,
        leader=record.leader_id,
        replicas=record.replicas,
        isr=record.isr_ids,
        min_insync=topic.replication.min_insync_replicas,
        adding=members_of(record.replicas, record.adding),
        is_unclean=topic.replication.unclean_leader_election,
    )


class IsrProposals:
    """One request under way at a time; what comes meanwhile goes with the next."""

    def __init__(
        self, source: ImageSource, propose: Propose, node: NodeId, answered: Answered
    ) -> None:
        self._source = source
        self._decide = propose
        self._node = node
        self._answered = answered
        self._waiting: dict[TopicPartition, ProposeIsr] = {}
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<IsrProposals: {len(self._waiting)} waiting>"

    def add(self, place: TopicPartition, proposal: ProposeIsr) -> None:
        """Propose a change; a later one for the same partition takes its place."""
        self._waiting[place] = proposal
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Propose nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            # What else this step brings goes along.
            await asyncio.sleep(0)
            while self._waiting:
                places = list(islice(self._waiting, ALTERED_PARTITIONS_MAX))
                await self._propose({place: self._waiting.pop(place) for place in places})
        finally:
            self._task = None

    async def _propose(self, proposals: dict[TopicPartition, ProposeIsr]) -> None:
        epoch = self._source.node_epoch
        parts = list(self._parts(proposals))
        if epoch is None or not parts:
            return
        command = AlterPartitions(node=self._node, epoch=epoch, parts=parts)
        try:
            reply = await self._decide(command)
        except GoQueueError as error:
            # Leaders propose again what was not answered.
            log.warning(LogEvent.ISR_NOT_CHANGED, partitions=len(parts), error=error.message)
            return
        if isinstance(reply, PartsReply):
            for part, outcome in zip(parts, reply.parts, strict=False):
                self._take(part, outcome)

    def _parts(self, proposals: dict[TopicPartition, ProposeIsr]) -> Iterator[PartIsr]:
        image = self._source.image
        for place, proposal in proposals.items():
            topic = find_topic(image, place.topic)
            if topic is None:
                continue
            # One that was not heard of yet counts as the process that is in sync.
            members = [
                InSyncMember(
                    node=node, epoch=image.nodes[node].epoch if node_epoch is None else node_epoch
                )
                for node, node_epoch in proposal.isr
                if node in image.nodes
            ]
            yield PartIsr(
                topic_id=topic.id,
                partition=place.partition,
                leader_epoch=proposal.epoch,
                partition_epoch=proposal.partition_epoch,
                isr=members,
            )

    def _take(self, part: PartIsr, outcome: PartOutcome) -> None:
        topic = self._source.image.topics.get(TopicId(part.topic_id))
        if topic is None or part.partition >= len(topic.partitions):
            return
        state = replica_set(topic, topic.partitions[part.partition])
        place = TopicPartition(topic.name, PartitionId(part.partition))
        self._answered(place, IsrAnswer(outcome=_verdict(part, outcome), state=state))


def find_topic(image: ClusterImage, name: str) -> ClusterTopic | None:
    """Return a topic of the image by name, None if there is none."""
    return image.topic(name) if name in image.catalog.topics else None


def _verdict(part: PartIsr, outcome: PartOutcome) -> AlterOutcome:
    if outcome.outcome == OK:
        return AlterOutcome.ACCEPTED
    if outcome.outcome == NotLeaderError.code or outcome.leader_epoch != part.leader_epoch:
        return AlterOutcome.FENCED
    is_behind = outcome.partition_epoch != part.partition_epoch
    if outcome.outcome == StaleEpochError.code and is_behind:
        return AlterOutcome.STALE
    return AlterOutcome.INELIGIBLE
