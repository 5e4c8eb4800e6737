"""The seam between a broker and the cluster it is a node of. A broker by itself has none.

The runtime of a broker asks this protocol and nothing else about other nodes, so that a single
broker imports nothing of a cluster. ``runtime/cluster`` implements it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from goqueue.base.ids import LeaderEpoch, NodeId, TopicName, TopicPartition
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Packet
from goqueue.wire.peer_calls import PeerOperation


class PartitionLeader(NamedTuple):
    """Who leads a partition, in which epoch; no node while there is no leader."""

    node: NodeId | None
    epoch: LeaderEpoch


class IdBlock(NamedTuple):
    """Ids that only this node may give out: ``first`` to ``first + size``."""

    first: int
    size: int


class NodePlace(NamedTuple):
    """A node that is alive, and where clients reach it."""

    node: NodeId
    native: str
    http: str
    rack: str = ""


class ClusterView(Protocol):
    """What clients are told of a cluster, from what this node has applied of its metadata."""

    @property
    def cluster_id(self) -> str:
        """The identity of the cluster; empty before it is founded."""
        ...

    @property
    def version(self) -> int:
        """A number that grows with every change of what is told here, on every node alike."""
        ...

    @property
    def controller(self) -> NodeId | None:
        """The node that decides about the metadata, as far as it is known."""
        ...

    @property
    def nodes(self) -> Sequence[NodePlace]:
        """The nodes clients may ask, in one order: all that are registered and not fenced."""
        ...

    @property
    def topics(self) -> Collection[TopicName]:
        """The topics as of the version; this node may not have opened, or closed, all of them."""
        ...

    def leaders_of(self, topic: TopicName) -> Sequence[PartitionLeader]:
        """Return who leads each partition of a topic, in order; none for an unknown topic."""
        ...


class Topology(Protocol):
    """Where things are in a cluster, and how its metadata is changed."""

    @property
    def view(self) -> ClusterView:
        """What clients are told."""
        ...

    @property
    def node(self) -> NodeId:
        """The name of this node."""
        ...

    @property
    def nodes(self) -> Sequence[NodeId]:
        """The nodes that are not known to be dead, this one among them, in order."""
        ...

    def check_live(self) -> None:
        """Raise NodeFencedError unless this node may answer for what it leads: its lease holds."""
        ...

    async def catch_up(self) -> None:
        """Return when this node has followed all that was decided before this was called."""
        ...

    def leader_of(self, place: TopicPartition) -> PartitionLeader:
        """Return who leads a partition, as far as this node knows, or raise if there is none."""
        ...

    async def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, object], by_broker: bool = False
    ) -> None:
        """Make a topic on all nodes; return when this node serves it, or raise as on one node."""
        ...

    async def configure_topic(self, name: str, changes: Mapping[str, object]) -> None:
        """Change settings of a topic; return when this node has them."""
        ...

    async def add_partitions(
        self, name: str, count: int, assignments: Mapping[int, Sequence[str]]
    ) -> None:
        """Give a topic more partitions; return when this node serves them."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Remove a topic from all nodes; return when this node has removed it."""
        ...

    async def allocate_ids(self, kind: str, *, owner: int = 0, above: int = 0) -> IdBlock:
        """Return a block of ids that no other node gives out."""
        ...

    async def request(
        self,
        to: NodeId,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Packet:
        """Return a peer's reply to a request, or raise what it raised.

        Where the connection was lost, the request may have been carried out.
        """
        ...
