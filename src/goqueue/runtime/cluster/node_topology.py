"""What a broker asks about its cluster: who leads what, and how topics are made on all nodes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from goqueue.base.errors import InvalidConfigError, LeaderNotAvailableError, NodeFencedError
from goqueue.base.ids import NodeId, TopicName, TopicPartition
from goqueue.core.cluster.commands import (
    AddPartitions,
    AllocateIds,
    ChangeSecurity,
    Command,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    Setting,
)
from goqueue.core.cluster.events import Event, SecurityChanged
from goqueue.core.cluster.replies import IdsReply, Reply, SecurityDone
from goqueue.core.security.commands import Command as SecurityCommand
from goqueue.core.security.directory import Directory
from goqueue.core.security.directory import Reply as SecurityReply
from goqueue.runtime.cluster.consensus import Consensus
from goqueue.runtime.cluster.image_view import ImageView
from goqueue.runtime.cluster.internal_topics import with_factor
from goqueue.runtime.cluster.links import Links
from goqueue.runtime.cluster.membership import NodeMembership
from goqueue.runtime.cluster.metadata import Metadata
from goqueue.runtime.cluster.proposing import Proposing
from goqueue.runtime.topology import IdBlock, PartitionLeader
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Packet
from goqueue.wire.peer_calls import PeerOperation

SCALING_WAIT_SECONDS: Final = 0.05
SCALING_WAITS_MAX: Final = 100
"""How often is looked whether added partitions are in use, before the caller is answered."""


class LocalTopics(Protocol):
    """The topics of the broker of this node, which follow the image some time later."""

    async def served(self, name: TopicName) -> None:
        """Return when the broker has a topic that the image has."""
        ...

    async def removed(self, name: TopicName) -> None:
        """Return when the broker no longer has a topic that the image has not."""
        ...

    async def settled(self) -> None:
        """Return when the broker has the topics that the image has now."""
        ...


class ImageTopics:
    """Topics that are there as soon as the image has them: where no broker follows it."""

    async def served(self, name: TopicName) -> None:
        """Return at once."""

    async def removed(self, name: TopicName) -> None:
        """Return at once."""

    async def settled(self) -> None:
        """Return at once."""


class NodeTopology:
    """The ``Topology`` of a broker that is a node of a cluster."""

    def __init__(self, metadata: Metadata, *, factor: int = 0) -> None:
        self.metadata = metadata
        self._factor = factor
        self.view = ImageView(metadata)
        self.topics: LocalTopics = ImageTopics()
        """Asked whether the broker has followed the image; set by what opens topics."""
        self._proposing: Proposing | None = None
        self._membership: NodeMembership | None = None
        self._links: Links | None = None
        self._consensus: Consensus | None = None

    def attach(
        self,
        proposing: Proposing,
        membership: NodeMembership,
        links: Links,
        consensus: Consensus,
    ) -> None:
        """Know the parts of a node that takes part in its quorum."""
        self._proposing, self._membership, self._links = proposing, membership, links
        self._consensus = consensus

    async def propose(self, command: Command) -> Reply:
        """Return the answer of the controller when this node has applied it."""
        if self._proposing is None:
            raise LeaderNotAvailableError(f"the node {self.node} is starting")
        return await self._proposing.propose(command)

    @property
    def node(self) -> NodeId:
        """The name of this node."""
        return self.metadata.own

    @property
    def nodes(self) -> Sequence[NodeId]:
        """The nodes that are not known to be dead, this one among them, in order."""
        return sorted({self.node, *(one.node for one in self.view.nodes)})

    def check_live(self) -> None:
        """Raise NodeFencedError unless this node may answer for what it leads."""
        if self._membership is None:
            raise NodeFencedError(f"the node {self.node} is starting")
        self._membership.check_live()

    async def catch_up(self) -> None:
        """Return when this node has followed all that was decided before this was called."""
        if self._consensus is None:
            raise LeaderNotAvailableError(f"the node {self.node} is starting")
        await self._consensus.barrier()
        await self.topics.settled()

    def leader_of(self, place: TopicPartition) -> PartitionLeader:
        """Return who leads a partition, as far as this node knows, or raise if there is none."""
        image = self.metadata.image
        record = image.partition(image.topic(place.topic), place.partition)
        return PartitionLeader(record.leader_id, record.leader_epoch)

    async def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, object], by_broker: bool = False
    ) -> None:
        """Make a topic on all nodes; return when this node serves it."""
        command = CreateTopic(
            name=name,
            partitions=partitions,
            settings=with_factor(_settings(settings), self._factor),
            by_broker=by_broker,
        )
        await self.propose(command)
        await self.topics.served(TopicName(name))

    async def configure_topic(self, name: str, changes: Mapping[str, object]) -> None:
        """Change settings of a topic; return when this node has them."""
        await self.propose(ConfigureTopic(name=name, settings=_settings(changes)))

    async def add_partitions(
        self, name: str, count: int, assignments: Mapping[int, Sequence[str]]
    ) -> None:
        """Give a topic more partitions; return when this node serves them."""
        placed = {number: [str(node) for node in nodes] for number, nodes in assignments.items()}
        await self.propose(AddPartitions(name=name, count=count, assignments=placed))
        await self.topics.settled()
        waits = 0
        while self._is_scaling(name) and waits < SCALING_WAITS_MAX:
            # The controller asks all leaders; what is left of it goes on without this caller.
            waits += 1
            await asyncio.sleep(SCALING_WAIT_SECONDS)

    def _is_scaling(self, name: str) -> bool:
        image = self.metadata.image
        return name in image.catalog.topics and image.topic(name).is_scaling

    async def delete_topic(self, name: str) -> None:
        """Remove a topic from all nodes; return when this node has removed it."""
        await self.propose(DeleteTopic(name=name))
        await self.topics.removed(TopicName(name))

    @property
    def security(self) -> Directory:
        """The keys and access rules of the cluster, as far as this node knows them."""
        return self.metadata.image.security

    def watch_security(self, watcher: Callable[[], None]) -> None:
        """Have a function called in each step in which they change."""

        def watch(events: Sequence[Event] | None) -> None:
            if events is None or any(isinstance(one, SecurityChanged) for one in events):
                watcher()

        self.metadata.watch(watch)

    async def change_security(self, command: SecurityCommand) -> SecurityReply:
        """Change them on all nodes; return when this node has them so, or raise."""
        reply = await self.propose(ChangeSecurity(command=command))
        assert isinstance(reply, SecurityDone), "the answer to a change"
        return reply.key or reply.rule

    async def allocate_ids(self, kind: str, *, owner: int = 0, above: int = 0) -> IdBlock:
        """Return a block of ids that no other node gives out."""
        reply = await self.propose(AllocateIds(kind=kind, owner=owner, above=above))
        assert isinstance(reply, IdsReply), "the answer to an allocation"
        return IdBlock(reply.first, reply.count)

    async def request(
        self,
        to: NodeId,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Packet:
        """Return a peer's reply to a request, or raise what it raised."""
        assert self._links is not None, "the node takes part"
        return await self._links.request(to, operation, header, payload, timeout_s=timeout_s)


def _settings(given: Mapping[str, object]) -> dict[str, Setting]:
    """Return settings as a proposal carries them; what they may be is decided by the verb."""
    found: dict[str, Setting] = {}
    for name, value in given.items():
        if not isinstance(value, str | int | float):
            raise InvalidConfigError(f"{name}: must be text, a number, true or false")
        found[name] = value
    return found
