"""Some brokers of a cluster in one simulated process, their roles set by hand.

Requests between them are handed over in memory: late, lost on the way there or back, or twice, by
the seed. Nothing is replicated; where a partition moves, its log is copied.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from goqueue.base.caller import Caller, Transport
from goqueue.base.errors import (
    ConnectionLostError,
    GoQueueError,
    LeaderNotAvailableError,
    UnsupportedError,
    from_code,
)
from goqueue.base.ids import (
    Epoch,
    LeaderEpoch,
    NodeId,
    PartitionId,
    TopicName,
    TopicPartition,
)
from goqueue.config.model import BrokerConfig
from goqueue.core.cluster import blocks, commands
from goqueue.core.cluster.image import ClusterImage
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.replica import Replica
from goqueue.runtime.schemas.schemas import SCHEMAS_TOPIC
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.runtime.topology import IdBlock, PartitionLeader
from goqueue.runtime.tx.tx_link import TX_TOPIC
from goqueue.service.forwarding import ForwardedRequests
from goqueue.service.routed import asked_verbs
from goqueue.service.service import Service
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.sim.simulation import Simulation
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Kind, Packet
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation
from tests.service.views import Copied, SetView

CALLER = Caller(transport=Transport.HTTP, peer="127.0.0.1")
STATE_TOPICS = (STATE_TOPIC, TX_TOPIC, SCHEMAS_TOPIC)
Answering = Callable[[PeerIdentity, Buffer, memoryview], Awaitable[Any]]


def place(topic: str, partition: int = 0) -> TopicPartition:
    """Return the name of a partition."""
    return TopicPartition(TopicName(topic), PartitionId(partition))


@dataclass
class Node:
    """One broker with what is before it."""

    name: NodeId
    disk: MemoryDisk
    broker: Broker
    service: Service
    handlers: dict[PeerOperation, Answering] = field(default_factory=dict)
    is_up: bool = True

    def partition(self, where: TopicPartition) -> Partition:
        """Return its copy of a partition."""
        return self.broker.topic(where.topic).partition(where.partition)


class HandTopology:
    """What one node is told of the cluster."""

    def __init__(self, fleet: "ServiceFleet", node: NodeId) -> None:
        self._fleet = fleet
        self.node = node

    @property
    def nodes(self) -> Sequence[NodeId]:
        return list(self._fleet.nodes)

    @property
    def view(self) -> SetView:
        return SetView(dict.fromkeys(self._fleet.nodes, ""))

    def check_live(self) -> None:
        """Every node may answer."""

    async def catch_up(self) -> None:
        """Know everything at once."""

    def leader_of(self, where: TopicPartition) -> PartitionLeader:
        return PartitionLeader(self._fleet.leader(where), LeaderEpoch(self._fleet.epoch))

    async def create_topic(
        self, name: str, *, partitions: int, settings: Mapping[str, object], by_broker: bool = False
    ) -> None:
        await asyncio.sleep(self._fleet.delay())
        self._fleet.create(name, partitions, settings, by_broker=by_broker)
        await self._fleet.settled()

    async def configure_topic(self, name: str, changes: Mapping[str, object]) -> None:
        for one in self._fleet.nodes.values():
            one.broker.configure_topic(name, changes)

    async def add_partitions(
        self, name: str, count: int, assignments: Mapping[int, Sequence[str]]
    ) -> None:
        assert not assignments, "by itself"
        for one in self._fleet.nodes.values():
            await one.broker.catalogue.scale(name, partitions=count)

    async def delete_topic(self, name: str) -> None:
        for one in self._fleet.nodes.values():
            one.broker.delete_topic(name)

    async def allocate_ids(self, kind: str, *, owner: int = 0, above: int = 0) -> IdBlock:
        await asyncio.sleep(self._fleet.delay())
        return self._fleet.allocate(kind, owner, above)

    async def request(
        self,
        to: NodeId,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Packet:
        async with asyncio.timeout(timeout_s):
            raw = msgspec.msgpack.encode(header)
            return await self._fleet.carry(self.node, to, operation, raw, b"".join(payload))


class ServiceFleet:
    """The nodes, who leads what, and the wires between them."""

    def __init__(self, simulation: Simulation, count: int) -> None:
        self.simulation = simulation
        self.random = Random(simulation.chance.getrandbits(64))
        self.loss = self.repeats = 0.0
        self.delay_s = 0.01
        self.epoch = 1
        self.has_controller = True
        self.image = ClusterImage()
        self.leaders: dict[TopicPartition, NodeId] = {}
        self._gaining: list[Coroutine[Any, Any, None]] = []
        self.blocks: list[IdBlock] = []
        self.requests: list[tuple[NodeId, NodeId, PeerOperation]] = []
        self.nodes = {name: self._make(name) for name in map(NodeId, "abc"[:count])}

    def _make(self, name: NodeId) -> Node:
        disk, topology = MemoryDisk(), HandTopology(self, name)
        config = BrokerConfig(sync_threads=0, node_id=name)
        broker = Broker(config, disk, topology=topology)
        service = Service(broker)
        node = Node(name, disk, broker, service)
        self.wire(node)
        return node

    def wire(self, node: Node) -> None:
        """Let a node answer its peers."""
        service = node.service
        forwarded = ForwardedRequests(
            service.gate, service.turns, serve=Dispatch(service).serve, verbs=asked_verbs(service)
        )
        node.handlers.update(forwarded.handlers())
        assert node.broker.own_targets is not None
        node.handlers.update(node.broker.own_targets.handlers())
        assert node.broker.redrives.led is not None
        node.handlers.update(node.broker.redrives.led.handlers())
        assert node.broker.schemas.feed is not None
        node.handlers.update(node.broker.schemas.feed.handlers())

    async def start(self) -> None:
        """Start every node; state partitions are loaded where they are led."""
        for node in self.nodes.values():
            await node.broker.start()
        for topic, state in next(iter(self.nodes.values())).broker.state_logs.items():
            self.create(topic, len(state.partitions), {}, by_broker=True)
        await self.settled()

    async def stop(self) -> None:
        """Stop every node cleanly."""
        for node in self.nodes.values():
            await node.broker.stop()

    # Who leads what.

    def leader(self, where: TopicPartition) -> NodeId:
        """Return who leads a partition: by its number unless it was moved."""
        names = list(self.nodes)
        known = self.leaders.get(where)
        return NodeId(names[where.partition % len(names)]) if known is None else known

    def create(
        self, name: str, partitions: int, settings: Mapping[str, object], *, by_broker: bool = False
    ) -> None:
        """Make a topic on all nodes."""
        for node in self.nodes.values():
            node.broker.create_topic(
                name, partitions=partitions, settings=settings, by_broker=by_broker
            )
            self._set_roles(node, name)

    def _set_roles(self, node: Node, topic: str) -> None:
        states = node.broker.topic(topic).states
        states.on_made = lambda made: made.leadership.lead(Epoch(self.epoch), None)
        for one in node.broker.topic(topic).partitions:
            if self.leader(one.name) != node.name:
                one.leadership.follow(Epoch(self.epoch), Copied())
            else:
                one.leadership.lead(Epoch(self.epoch), None)
                if topic in STATE_TOPICS:
                    self._gaining.append(node.broker.coordinators.gain(one.name))
                else:
                    node.broker.coordinators.gain_at_once(one.name)

    async def settled(self) -> None:
        """Return when state is loaded where it is led."""
        gaining, self._gaining = self._gaining, []
        for one in gaining:
            await one

    async def move(self, where: TopicPartition, to: str) -> None:
        """Let another node lead a partition, with all that is in it."""
        old, new = self.nodes[self.leader(where)], self.nodes[NodeId(to)]
        if old is new:
            return
        self.epoch += 1
        self.leaders[where] = new.name
        await old.broker.coordinators.lose(where)
        source, target = old.partition(where), new.partition(where)
        source.leadership.follow(Epoch(self.epoch), Copied())
        target.leadership.follow(Epoch(self.epoch), Copied())
        source.wake()
        await self._copy(source, target, new.broker)
        target.leadership.lead(Epoch(self.epoch), None)
        await self._move_state(where, old.broker, new.broker)
        await new.broker.coordinators.gain(where)

    async def _move_state(self, where: TopicPartition, old: Broker, new: Broker) -> None:
        """Let what is decided about the messages of a partition go with them."""
        source = old.topic(where.topic).states.of(where.partition)
        if source is None:
            return
        source.leadership.follow(Epoch(self.epoch), Copied())
        target = new.topic(where.topic).states.open(where.partition)
        target.leadership.follow(Epoch(self.epoch), Copied())
        await self._copy(source, target, new)
        target.leadership.lead(Epoch(self.epoch), None)

    async def _copy(self, source: Partition, target: Partition, broker: Broker) -> None:
        replica = Replica(broker.topic(source.name.topic), target, broker.clock)
        while target.log.end_offset < source.log.end_offset:
            piece = await source.read(
                target.log.end_offset, end_offset=source.log.end_offset, bytes_max=1 << 20
            )
            await replica.append_stored(piece.frames, epoch=Epoch(self.epoch))
        await target.durable()

    # Ids.

    def allocate(self, kind: str, owner: int, above: int) -> IdBlock:
        """Give out the next block of an owner, as the metadata does."""
        if not self.has_controller:
            raise LeaderNotAvailableError("there is no controller")
        command = commands.AllocateIds(kind=kind, owner=owner, above=above)
        decision = blocks.allocate(self.image, command, 0)
        for event in decision.events:
            self.image.apply(event)
        self.blocks.append(IdBlock(decision.reply.first, decision.reply.count))
        return self.blocks[-1]

    # Wires.

    async def until(self, is_so: Callable[[], bool], *, within_s: float = 120) -> None:
        """Return when a condition holds, or fail if it does not within some virtual time."""
        deadline = self.simulation.loop.time() + within_s
        while not is_so():
            assert self.simulation.loop.time() < deadline, "it never came true"
            await asyncio.sleep(0.05)

    def delay(self) -> float:
        """Return how long something takes."""
        return self.random.uniform(0, self.delay_s)

    async def carry(
        self, sender: NodeId, to: NodeId, operation: PeerOperation, header: bytes, payload: bytes
    ) -> Packet:
        """Hand a request over and its reply back, unless one of them is lost."""
        self.requests.append((sender, to, operation))
        await asyncio.sleep(self.delay())
        if not (self.nodes[to].is_up and self.nodes[sender].is_up) or self._is_lost():
            raise ConnectionLostError("lost on the way there")
        again = self.random.random() < self.repeats
        answering = asyncio.ensure_future(self._answer(sender, to, operation, header, payload))
        if again:
            await asyncio.sleep(self.delay())
            await asyncio.wait([self._late(sender, to, operation, header, payload)])
        reply = await asyncio.shield(answering)
        await asyncio.sleep(self.delay())
        if not (self.nodes[to].is_up and self.nodes[sender].is_up) or self._is_lost():
            raise ConnectionLostError("lost on the way back")
        if isinstance(reply, GoQueueError):
            raise from_code(reply.code, reply.message)
        raw = memoryview(msgspec.msgpack.encode(reply.header))
        body = memoryview(b"".join(reply.payload))
        return Packet(operation, Kind.REPLY, 1, raw, body)

    def _late(self, *request: Any) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self._answer(*request))

    async def _answer(
        self, sender: NodeId, to: NodeId, operation: PeerOperation, header: bytes, payload: bytes
    ) -> Any:
        peer = PeerIdentity("cluster", sender, f"disk-of-{sender}")
        try:
            answering = self.nodes[to].handlers.get(operation)
            if answering is None:
                return UnsupportedError(f"{operation.name} is not answered")
            return await answering(peer, header, memoryview(payload))
        except GoQueueError as error:
            return error

    def _is_lost(self) -> bool:
        return self.random.random() < self.loss


Scenario = Callable[[ServiceFleet], Awaitable[None]]


def run_services(scenario: Scenario, *, seed: int = 1, nodes: int = 2) -> None:
    """Run a scenario on virtual time."""
    simulation = Simulation(seed)

    async def main(simulation: Simulation) -> None:
        fleet = ServiceFleet(simulation, nodes)
        await fleet.start()
        await scenario(fleet)
        fleet.loss = fleet.repeats = 0.0
        await fleet.stop()

    simulation.run(main)
    assert not simulation.failures, simulation.failures
