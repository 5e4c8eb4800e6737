"""Three real brokers that replicate, in one simulation: started, killed, cut off, wiped."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from goqueue.base.errors import NodeFencedError, NotLeaderError
from goqueue.base.ids import (
    DirectoryId,
    LeaderEpoch,
    NodeId,
    PartitionId,
    TopicName,
    TopicPartition,
)
from goqueue.config.model import BrokerConfig
from goqueue.core.cluster.commands import (
    AddPartitions,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    FenceNode,
    RegisterNode,
)
from goqueue.core.cluster.records import PartitionRecord
from goqueue.runtime.broker import Broker
from goqueue.runtime.cluster.links import Handler
from goqueue.runtime.cluster.replicas import Replicas
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.topology import IdBlock, PartitionLeader
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.sim.broker import SimPool
from goqueue.testing.sim.host import Host
from goqueue.testing.sim.simulation import Simulation
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Packet
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation
from tests.service.views import SetView
from tests.sim.cluster_links import SimLinks, SimPeers
from tests.sim.cluster_metadata import CLUSTER_ID, SimController, SimMetadata

T = TypeVar("T")
LEASE_MS = 1_000
BEAT_SECONDS = 0.25
LAG_MS = 2_000
HEAL_SECONDS = 60.0


class SimTopology:
    """The cluster as one broker sees it."""

    def __init__(self, metadata: SimMetadata, links: SimLinks, now_ms: Callable[[], int]) -> None:
        self._metadata = metadata
        self._links = links
        self._now_ms = now_ms
        self.replicas: Replicas | None = None

    @property
    def node(self) -> NodeId:
        return self._metadata.node

    @property
    def nodes(self) -> Sequence[NodeId]:
        return sorted({self.node, *self._metadata.image.nodes})

    @property
    def view(self) -> SetView:
        return SetView(dict.fromkeys(self.nodes, ""))

    def check_live(self) -> None:
        if self._now_ms() - self._metadata.heard_ms > LEASE_MS:
            raise NodeFencedError("the lease of this node is over")

    async def catch_up(self) -> None:
        """Know everything at once."""

    def leader_of(self, place: TopicPartition) -> PartitionLeader:
        topic = self._metadata.image.topic(place.topic)
        record = self._metadata.image.partition(topic, place.partition)
        return PartitionLeader(record.leader_id, LeaderEpoch(record.leader_epoch))

    async def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, object], by_broker: bool = False
    ) -> None:
        command = CreateTopic(
            name=name,
            partitions=partitions,
            settings=dict(settings),  # type: ignore[arg-type]
            by_broker=by_broker,
        )
        await self._metadata.propose(command)
        await self._settle()

    async def configure_topic(self, name: str, changes: Mapping[str, object]) -> None:
        await self._metadata.propose(ConfigureTopic(name=name, settings=dict(changes)))  # type: ignore[arg-type]
        await self._settle()

    async def add_partitions(
        self, name: str, count: int, assignments: Mapping[int, Sequence[str]]
    ) -> None:
        placed = {number: list(nodes) for number, nodes in assignments.items()}
        await self._metadata.propose(AddPartitions(name=name, count=count, assignments=placed))
        await self._settle()

    async def delete_topic(self, name: str) -> None:
        await self._metadata.propose(DeleteTopic(name=name))
        await self._settle()

    async def _settle(self) -> None:
        assert self.replicas is not None
        await self.replicas.settled()

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
        return await self._links.request(to, operation, header, payload, timeout_s=timeout_s)


class SimNode:
    """One data directory and the processes that serve it, one after the other."""

    def __init__(self, name: NodeId, cluster: "SimCluster") -> None:
        self.name = name
        self.disk = MemoryDisk()
        self.directory = DirectoryId(f"{name}-0")
        self.lives = 0
        self.is_clean = True
        self.is_serving = False
        self._cluster = cluster
        self._host: Host | None = None
        self._torn = Random(cluster.simulation.chance.getrandbits(64))
        self.applied = 0
        """How much of the metadata the disk remembers."""
        self.metadata: SimMetadata | None = None
        self._broker: Broker | None = None
        self._replicas: Replicas | None = None

    def __repr__(self) -> str:
        return f"<SimNode {self.name} in life {self.lives}>"

    @property
    def is_up(self) -> bool:
        return self._host is not None

    @property
    def is_live(self) -> bool:
        """Return True while the lease of the process holds."""
        metadata, now_ms = self.metadata, self._cluster.controller.now_ms()
        return metadata is not None and now_ms - metadata.heard_ms <= LEASE_MS

    @property
    def host(self) -> Host:
        assert self._host is not None, "started"
        return self._host

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, "started"
        return self._broker

    @property
    def replicas(self) -> Replicas:
        assert self._replicas is not None, "started"
        return self._replicas

    @property
    def identity(self) -> PeerIdentity:
        return PeerIdentity(CLUSTER_ID, self.name, self.directory, self.lives)

    def handlers(self) -> Mapping[PeerOperation, Handler]:
        return self.replicas.handlers()

    def begin(self) -> None:
        """Start a process; it serves when it has registered."""
        assert self._host is None, "one process at a time"
        self.lives += 1
        self._host = self._cluster.simulation.host(f"{self.name}-{self.lives}")
        self._host.begin(self._serve(self._host))

    async def _serve(self, host: Host) -> None:
        cluster = self._cluster
        links = SimLinks(cluster.peers, self.identity)
        metadata = SimMetadata(cluster.controller, cluster.peers, self.name, host)
        metadata.apply(self.applied)
        self.metadata = metadata
        topology = SimTopology(metadata, links, cluster.controller.now_ms)
        pool = SimPool(cluster.simulation)
        config = BrokerConfig(node_id=self.name, sync_threads=2)
        broker = Broker(config, self.disk, sync_pool=pool, topology=topology)
        # Ids are given out by the clients of a simulation.
        broker.producer_ids.check_life = lambda **_: None
        broker.producer_ids.check_free = lambda producer_id: None  # type: ignore[method-assign]  # noqa: ARG005
        await broker.start()
        replicas = Replicas(
            broker,
            metadata,
            links,
            identity=self.identity,
            propose=metadata.propose,
            check_live=topology.check_live,
            lag_ms=LAG_MS,
        )
        topology.replicas = replicas
        self._broker, self._replicas = broker, replicas
        cluster.started(self)
        await replicas.start()
        cluster.controller.follow(metadata)
        cluster.peers.joined(self)
        await metadata.register(self.registration(self.lives))
        replicas.registered()
        await replicas.settled()
        self.is_serving = True
        while True:
            await metadata.beat()
            self.applied = metadata.applied
            await asyncio.sleep(BEAT_SECONDS)

    def registration(self, incarnation: int) -> RegisterNode:
        """Return what a process of this node asks for first."""
        return RegisterNode(
            cluster_id=CLUSTER_ID,
            node=self.name,
            directory=self.directory,
            incarnation=incarnation,
            is_clean=self.is_clean,
        )

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the process."""
        return await self.host.run(work)

    # Ends.

    def kill(self) -> None:
        """Kill the process; what it wrote stays in the system's cache."""
        self._end()
        self.disk = self.disk.kill()

    def cut_power(self) -> None:
        """Let the machine lose power: what was not synced is gone, or torn."""
        self._end()
        self.is_clean = False
        self.disk = self.disk.crash(torn=self._torn)

    def wipe(self) -> None:
        """Replace the disk by an empty one; the process is dead."""
        assert self._host is None, "dead"
        self.disk = MemoryDisk()
        self.applied = 0
        self.directory = DirectoryId(f"{self.name}-{self.lives}")

    async def stop(self) -> None:
        """Stop the process cleanly."""
        await self.run(self._stop())
        self._end()
        self.is_clean = True
        self.disk = self.disk.kill()

    async def _stop(self) -> None:
        await self.replicas.stop()
        await self.broker.stop()

    def _end(self) -> None:
        host, self._host = self.host, None
        host.kill()
        self._cluster.peers.died(self)
        self._cluster.ended(self)
        self._broker = self._replicas = self.metadata = None
        self.is_serving = False


class SimCluster:
    """The nodes, their controller and the network between them."""

    def __init__(self, simulation: Simulation, nodes: int = 3) -> None:
        self.simulation = simulation
        self.peers = SimPeers(simulation)
        self.controller = SimController(simulation, self.peers)
        self.names = [NodeId(f"n{number}") for number in range(1, nodes + 1)]
        self.nodes = {name: SimNode(name, self) for name in self.names}
        self.on_started: Callable[[SimNode], None] = lambda _: None
        self.on_ended: Callable[[SimNode], None] = lambda _: None

    def started(self, node: SimNode) -> None:
        self.on_started(node)

    def ended(self, node: SimNode) -> None:
        self.on_ended(node)

    async def start(self) -> None:
        """Start all nodes and wait until they serve."""
        self.controller.start()
        for node in self.nodes.values():
            node.begin()
        await self.until(lambda: all(self.is_alive(name) for name in self.names))

    def is_alive(self, name: NodeId) -> bool:
        known = self.controller.image.nodes.get(name)
        return known is not None and known.may_lead and self.nodes[name].is_serving

    async def until(
        self, condition: Callable[[], bool], seconds: float = HEAL_SECONDS, what: str = ""
    ) -> None:
        """Wait for something, or fail."""
        deadline = self.simulation.loop.time() + seconds
        while not condition():
            assert self.simulation.loop.time() < deadline, what or f"not in time: {self.wrong()}"
            await asyncio.sleep(0.01)

    async def advance_ms(self, duration_ms: int) -> None:
        """Let virtual time pass."""
        until = self.simulation.loop.time() + duration_ms / 1_000
        await self.until(lambda: self.simulation.loop.time() >= until)

    async def create(self, name: str, *, partitions: int = 1, **settings: Any) -> None:
        """Make a topic and wait until its leaders serve."""
        self.controller.decide(
            CreateTopic(
                name=name,
                partitions=partitions,
                settings=settings,
                by_broker=name.startswith("__"),
            )
        )
        await self.until(lambda: self.is_led(name))

    def record(self, topic: str, partition: int = 0) -> PartitionRecord:
        image = self.controller.image
        return image.partition(image.topic(topic), partition)

    def leader(self, topic: str, partition: int = 0) -> SimNode:
        """Return the node that the controller has chosen, or raise."""
        found = self.record(topic, partition).leader_id
        if found is None or not self.nodes[found].is_up:
            raise NotLeaderError("there is no leader")
        return self.nodes[found]

    def partition(self, node: SimNode, topic: str, partition: int = 0) -> Partition:
        return node.broker.topic(topic).partition(partition)

    def is_led(self, topic: str) -> bool:
        """Return True if all leaders of a topic serve."""
        count = len(self.controller.image.topic(topic).partitions)
        return all(self._is_led(topic, number) for number in range(count))

    def _is_led(self, topic: str, number: int) -> bool:
        record = self.record(topic, number)
        node = None if record.leader_id is None else self.nodes[record.leader_id]
        if node is None or not node.is_serving:
            return False
        group = node.replicas.groups.get(TopicPartition(TopicName(topic), PartitionId(number)))
        return group is not None and group.is_leading and int(group.epoch) == record.leader_epoch

    def is_whole(self) -> bool:
        """Return True if every partition is led and all its replicas are in sync."""
        image = self.controller.image
        return all(self.is_alive(name) for name in self.names) and all(
            self.is_led(topic.name)
            and all(set(record.isr_ids) == set(record.replicas) for record in topic.partitions)
            for topic in image.topics.values()
        )

    def wrong(self) -> str:
        """Say how things stand."""
        image = self.controller.image
        records = {topic.name: topic.partitions for topic in image.topics.values()}
        return f"{records} {dict(image.nodes)} cuts {self.peers.cuts}"

    def forget_disk(self, node: SimNode) -> None:
        """Wipe the disk of a dead node, and let the controller know of it before anything else.

        A second fault in between may cost everything, and is not what is tested.
        """
        node.wipe()
        epoch = self.controller.image.nodes[node.name].epoch
        self.controller.decide(FenceNode(node=node.name, epoch=epoch))
        self.controller.decide(node.registration(node.lives + 1))

    def heal(self) -> None:
        """Mend everything."""
        self.peers.heal()
        self.controller.is_stopped = False
        self.simulation.slow_down_disks(0)
        for node in self.nodes.values():
            node.disk.heal()
            if not node.is_up:
                node.begin()


Scenario = Callable[[SimCluster], Coroutine[Any, Any, None]]


def run_cluster(scenario: Scenario, *, seed: int = 1, nodes: int = 3) -> Simulation:
    """Run a scenario on virtual time."""
    simulation = Simulation(seed)

    async def main(simulation: Simulation) -> None:
        cluster = SimCluster(simulation, nodes)
        await cluster.start()
        await scenario(cluster)

    simulation.run(main)
    assert not simulation.failures, simulation.failures
    return simulation
