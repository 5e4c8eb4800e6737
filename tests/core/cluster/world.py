"""A cluster's image at work: proposals are decided, their events stored, applied and checked."""

from dataclasses import dataclass, field

from goqueue.base.ids import NodeId
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.records import NONE, PartitionRecord
from goqueue.core.cluster.replies import (
    IdsReply,
    NodeReply,
    PartsReply,
    ReassignmentReply,
    Reply,
    TopicReply,
)
from goqueue.core.cluster.verbs import decide

CLUSTER = "blue"


def state_of(image: ClusterImage) -> list[bytes]:
    """Return everything an image knows, as bytes."""
    return [events.encode(event) for event in image.snapshot()]


def rebuilt(stored: list[bytes]) -> ClusterImage:
    """Return the image that stored events make."""
    image = ClusterImage()
    for data in stored:
        image.apply(events.decode(data))
    return image


def check_image(image: ClusterImage) -> None:
    """What always holds, behind each entry of the log."""
    for topic in image.topics.values():
        assert image.catalog.get(topic.name).partitions == len(topic.partitions)
        assert topic.history[-1].count == len(topic.partitions)
        for number, record in enumerate(topic.partitions):
            check_partition(image, record, topic.replication.min_insync_replicas)
            move = image.move_of(topic.id, number)
            assert bool(record.is_moving) <= (move is not None)
    assert image.partition_count == sum(len(topic.partitions) for topic in image.topics.values())
    assert len(image.topics) == len(image.catalog)


def check_partition(image: ClusterImage, record: PartitionRecord, min_insync: int) -> None:
    everyone = (1 << len(record.replicas)) - 1
    assert len(set(record.replicas)) == len(record.replicas)
    assert set(record.replicas) <= image.nodes.keys()
    assert record.isr & ~everyone == record.elr & ~everyone == 0
    assert record.isr & record.elr == 0
    assert all(not image.nodes[node].is_fenced for node in record.isr_ids), "C4"
    assert (record.leader == NONE) == (record.isr == 0)
    if record.leader != NONE:
        assert record.leader_id in record.isr_ids
        assert record.last == NONE
    if record.elr:
        assert record.isr.bit_count() < min_insync, "nothing was committed without them"


@dataclass
class World:
    """An image and the log of its events."""

    image: ClusterImage = field(default_factory=ClusterImage)
    log: list[bytes] = field(default_factory=list)
    now_ms: int = 1_000
    incarnations: dict[str, int] = field(default_factory=dict)

    def propose(self, command: commands.Command, request_id: str = "") -> Reply:
        """Decide, store and apply."""
        proposal = commands.Proposal(command=command, request_id=request_id)
        arrived = commands.decode_proposal(commands.encode_proposal(proposal))
        decision = decide(self.image, arrived, now_ms=self.now_ms)
        for entry in events.entries(decision.events):
            self.apply(entry)
        return decision.reply

    def apply(self, entry: list[events.Event]) -> None:
        epochs = self.epochs()
        for event in entry:
            data = events.encode(event)
            self.log.append(data)
            self.image.apply(events.decode(data))
        check_image(self.image)
        for key, (leader_epoch, partition_epoch) in self.epochs().items():
            before = epochs.get(key, (0, 0))
            assert leader_epoch >= before[0]
            assert partition_epoch >= before[1]

    def epochs(self) -> dict[tuple[int, int], tuple[int, int]]:
        return {
            (topic.id, number): (record.leader_epoch, record.partition_epoch)
            for topic in self.image.topics.values()
            for number, record in enumerate(topic.partitions)
        }

    # Shorthands.

    def register(self, node: str, *, directory: str = "", clean: bool = False) -> NodeReply:
        """Start a process of a node; another directory is an empty disk."""
        directory = directory or f"{node}-disk"
        self.incarnations[directory] = self.incarnations.get(directory, 0) + 1
        reply = self.propose(
            commands.RegisterNode(
                cluster_id=CLUSTER,
                node=node,
                directory=directory,
                incarnation=self.incarnations[directory],
                native=f"{node}:7070",
                cluster=f"{node}:7000",
                is_clean=clean,
            )
        )
        assert isinstance(reply, NodeReply)
        return reply

    def epoch(self, node: str) -> int:
        return self.image.node(node).epoch

    def unfence(self, node: str) -> None:
        self.propose(commands.UnfenceNode(node=node, epoch=self.epoch(node)))

    def fence(self, node: str) -> None:
        self.propose(commands.FenceNode(node=node, epoch=self.epoch(node)))

    def start(self, node: str, *, directory: str = "", clean: bool = False) -> None:
        self.register(node, directory=directory, clean=clean)
        self.unfence(node)

    def create(self, name: str, partitions: int = 1, **settings: commands.Setting) -> TopicReply:
        reply = self.propose(
            commands.CreateTopic(name=name, partitions=partitions, settings=settings)
        )
        assert isinstance(reply, TopicReply)
        return reply

    def configure(self, name: str, **settings: commands.Setting) -> None:
        self.propose(commands.ConfigureTopic(name=name, settings=settings))

    def assign(self, name: str, *replicas: str, **settings: commands.Setting) -> None:
        """Make a topic of one partition with such replicas."""
        self.propose(
            commands.CreateTopic(
                name=name, partitions=1, settings=settings, assignments={0: list(replicas)}
            )
        )

    def at(self, name: str, partition: int = 0) -> PartitionRecord:
        return self.image.topic(name).partitions[partition]

    def part(self, name: str, *isr: str, partition: int = 0) -> commands.PartIsr:
        """Return what the leader of a partition would ask for now."""
        record = self.at(name, partition)
        return commands.PartIsr(
            topic_id=self.image.topic(name).id,
            partition=partition,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            isr=[commands.InSyncMember(node=node, epoch=self.epoch(node)) for node in isr],
        )

    def alter(self, *parts: commands.PartIsr, node: str) -> list[str]:
        """Ask as a node; return the outcomes."""
        reply = self.propose(
            commands.AlterPartitions(node=node, epoch=self.epoch(node), parts=list(parts))
        )
        assert isinstance(reply, PartsReply)
        return [part.outcome for part in reply.parts]

    def set_isr(self, name: str, *isr: str, partition: int = 0) -> str:
        leader = self.at(name, partition).leader_id
        assert leader is not None
        (outcome,) = self.alter(self.part(name, *isr, partition=partition), node=leader)
        return outcome

    def move(self, *parts: commands.PartMove, **options: int) -> str:
        reply = self.propose(commands.StartReassignment(parts=list(parts), **options))
        assert isinstance(reply, ReassignmentReply)
        return reply.id

    def ids(self, kind: str, owner: int = 0, above: int = 0) -> int:
        reply = self.propose(commands.AllocateIds(kind=kind, owner=owner, above=above))
        assert isinstance(reply, IdsReply)
        return reply.first


def founded(*nodes: str) -> World:
    """A cluster with nodes that are alive."""
    world = World()
    world.propose(commands.FoundCluster(cluster_id=CLUSTER))
    for node in nodes:
        world.start(node)
    return world


def leaders_of(world: World, name: str) -> list[NodeId | None]:
    return [record.leader_id for record in world.image.topic(name).partitions]
