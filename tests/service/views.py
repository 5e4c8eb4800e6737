"""A cluster as a test sets it: nodes, leaders, and a topology that knows nothing else."""

from collections.abc import Collection, Mapping, Sequence

from goqueue.base.ids import LeaderEpoch, NodeId, Offset, TopicName, TopicPartition
from goqueue.core.replication.epochs import EpochHistory
from goqueue.runtime.log.leadership import Mending
from goqueue.runtime.topology import IdBlock, NodePlace, PartitionLeader
from goqueue.storage.log_notes import Gap
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Packet
from goqueue.wire.peer_calls import PeerOperation


class Copied:
    """The replication of a partition whose leader is set by a test: what is synced is committed."""

    high_watermark = Offset(2**62)
    is_alone = True

    def check_append(self) -> None:
        """Take everything."""

    def check_live(self) -> None:
        """Be alive."""

    def appended(self, end_offset: Offset) -> None:
        assert end_offset >= 0

    def synced(self, durable_offset: Offset) -> None:
        assert durable_offset >= 0

    def trimmed(self, start_offset: Offset) -> None:
        assert start_offset >= 0

    def replicas_with(self, end_offset: Offset) -> int:
        assert end_offset >= 0
        return 1

    @property
    def epochs(self) -> EpochHistory:
        """Know of none."""
        return EpochHistory()

    async def mend(self, gap: Gap) -> Mending:
        """Have nothing of what is damaged."""
        assert gap.start_offset < gap.end_offset
        return Mending.LOST


class SetView:
    """What clients are told; each change is a new version."""

    def __init__(self, nodes: Mapping[str, str], *, cluster_id: str = "test-cluster") -> None:
        self.cluster_id = cluster_id
        self.version = 1
        self.controller: NodeId | None = NodeId(next(iter(nodes)))
        self._nodes = {node: NodePlace(NodeId(node), native, "") for node, native in nodes.items()}
        self._leaders: dict[str, list[PartitionLeader]] = {}

    @property
    def nodes(self) -> Sequence[NodePlace]:
        return list(self._nodes.values())

    @property
    def topics(self) -> Collection[TopicName]:
        """The topics somebody leads."""
        return [TopicName(name) for name in self._leaders]

    def leaders_of(self, topic: TopicName) -> Sequence[PartitionLeader]:
        return self._leaders.get(topic, [])

    def lead(self, topic: str, leaders: Sequence[str | None]) -> None:
        """Say who leads the partitions of a topic; those who change have a new epoch."""
        before = self._leaders.get(topic, [])
        after: list[PartitionLeader] = []
        for place, name in enumerate(leaders):
            node = None if name is None else NodeId(name)
            old = before[place] if place < len(before) else None
            epoch = 1 if old is None else old.epoch + (old.node != node)
            after.append(PartitionLeader(node, LeaderEpoch(epoch)))
        self._leaders[topic] = after
        self.version += 1

    def leave(self, node: str) -> None:
        """Let a node be fenced."""
        del self._nodes[node]
        self.version += 1

    def join(self, node: str, native: str) -> None:
        """Let a node be alive."""
        self._nodes[node] = NodePlace(NodeId(node), native, "")
        self.version += 1


class SetTopology:
    """The topology of one node whose view is set by a test; nodes do not speak to each other."""

    def __init__(self, view: SetView, node: str = "a") -> None:
        self.view = view
        self.node = NodeId(node)

    @property
    def nodes(self) -> Sequence[NodeId]:
        return [one.node for one in self.view.nodes]

    def check_live(self) -> None:
        """Be alive."""

    async def catch_up(self) -> None:
        """Know everything at once."""

    def leader_of(self, place: TopicPartition) -> PartitionLeader:
        return self.view.leaders_of(place.topic)[place.partition]

    async def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, object], by_broker: bool = False
    ) -> None:
        raise NotImplementedError

    async def configure_topic(self, name: str, changes: Mapping[str, object]) -> None:
        raise NotImplementedError

    async def add_partitions(
        self, name: str, count: int, assignments: Mapping[int, Sequence[str]]
    ) -> None:
        raise NotImplementedError

    async def delete_topic(self, name: str) -> None:
        raise NotImplementedError

    async def allocate_ids(self, kind: str, *, owner: int = 0, above: int = 0) -> IdBlock:
        raise NotImplementedError

    async def request(
        self,
        to: NodeId,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Packet:
        raise NotImplementedError
