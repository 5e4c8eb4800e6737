"""Some brokers that act as the nodes of a cluster, their roles set by hand.

Nothing is replicated: where a partition moves, its log is copied to the next leader first, as if
that had been in sync. All nodes know the same groups, so only the road to a coordinator is tested.
A node refuses what it does not lead or coordinate, before or, once in a while, after it did it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from goqueue.base.errors import NotCoordinatorError, NotLeaderError
from goqueue.base.ids import Epoch, Offset, Position, ProducerId, TopicName, TopicPartition
from goqueue.base.ids import Sequence as SequenceNumber
from goqueue.client.protocol.routing import ToCoordinator, route_of
from goqueue.config.model import BrokerConfig
from goqueue.core.record.stamp import ProducerStamp
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.replica import Replica
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.service.gate import Session
from goqueue.service.service import Service
from goqueue.service.verb import Later, Reply, RequestContext
from goqueue.testing.disk import MemoryDisk
from goqueue.transport.native.dispatch import Dispatch
from goqueue.transport.native.server import NativeServer
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Operation
from tests.service.views import Copied, SetTopology, SetView

STATE_PARTITIONS = 50


class GuardedDispatch(Dispatch):
    """Refuses what another node coordinates, and counts what it is asked."""

    def __init__(self, service: Service, node: "Node") -> None:
        super().__init__(service)
        self._node = node

    async def begin(
        self, session: Session, operation: int, header: Buffer, context: RequestContext
    ) -> Reply | Later:
        node = self._node
        node.asked[Operation(operation)] += 1
        await node.before(Operation(operation))
        node.check(Operation(operation), self._operations[operation].decode(header))
        reply = await super().begin(session, operation, header, context)
        await node.after(Operation(operation))
        return reply

    def begin_produce(
        self,
        session: Session,
        header: Buffer,
        payload: memoryview,
        done: Callable[[calls.Produced], None],
    ) -> calls.Produced | bool:
        del session, header, payload, done
        # Everything goes the general way, which has the hooks.
        return False


async def _nothing(operation: Operation) -> None:
    """Let a request pass."""


@dataclass(eq=False)
class Node:
    """One broker with its listener."""

    name: str
    fleet: "Fleet"
    broker: Broker
    native: NativeServer
    asked: Counter[Operation]
    before: Callable[[Operation], Any] = _nothing
    after: Callable[[Operation], Any] = _nothing
    is_up: bool = True

    @property
    def address(self) -> str:
        return self.native.address

    def partition(self, topic: str, number: int) -> Partition:
        return self.broker.topic(topic).partition(number)

    def check(self, operation: Operation, call: Any) -> None:
        route = route_of(operation, call)
        if isinstance(route, ToCoordinator) and self.fleet.coordinator(route) != self.name:
            raise NotCoordinatorError(f"{self.name} is not {route}")
        if operation is Operation.OFFSETS:
            topic = self.broker.topic(call.topic)
            asked = range(len(topic.partitions)) if call.partitions is None else call.partitions
            for number in asked:
                self.check_led(topic.partition(number))
        if operation in {Operation.SETTLE, Operation.NEXT}:
            for part in call.parts:
                self.check_led(self.partition(part.topic, part.partition))
        if operation is Operation.COMMIT_OFFSETS:
            for one in call.offsets:
                self.check_led(self.partition(one.topic, one.partition))

    def check_led(self, partition: Partition) -> None:
        if partition.leadership.role is not Role.LEADER:
            raise NotLeaderError(f"{self.name} does not lead {partition.name}")


class Fleet:
    """The nodes, who leads what, and what becomes of them."""

    def __init__(self, names: Sequence[str] = ("a", "b", "c")) -> None:
        self.names = names
        self.nodes: dict[str, Node] = {}
        self.view = SetView({"none": ""})
        self._ids = count(1)
        self._epoch = Epoch(1)

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    @property
    def addresses(self) -> str:
        """All nodes, as a client is given them."""
        return ",".join(node.address for node in self.nodes.values())

    async def start(self) -> None:
        for name in self.names:
            await self._start_node(name)
        addresses = {name: node.address for name, node in self.nodes.items()}
        self.view = SetView(addresses)
        for node in self.nodes.values():
            topology = node.broker.topology
            assert isinstance(topology, SetTopology)
            topology.view = self.view
        names = list(self.names)
        self.view.lead(
            "__consumer_offsets", [names[place % len(names)] for place in range(STATE_PARTITIONS)]
        )
        self.view.lead("__transactions", [names[place % len(names)] for place in range(2)])
        self.view.lead("__schemas", [names[0]])

    async def _start_node(self, name: str) -> None:
        config = BrokerConfig(node_id=name, sync_threads=0)
        # Each keeps everything by itself, and is told of a cluster when it has started.
        broker = Broker(config, MemoryDisk())
        broker.producer_ids.check_life = lambda **_: None
        broker.producer_ids.init = self._new_producer  # type: ignore[method-assign]
        broker.producer_ids.renew = _renewed  # type: ignore[method-assign]
        await broker.start()
        for state in broker.state_logs.values():
            await state.prepare()
        broker.topology = SetTopology(self.view, name)
        if self.nodes:
            await broker.groups.stop()
            self._share_groups(broker, next(iter(self.nodes.values())).broker)
        service = Service(broker)
        native = NativeServer(service)
        node = Node(name, self, broker, native, Counter())
        native._dispatch = GuardedDispatch(service, node)  # noqa: SLF001 - to stand before it
        self._lease_led_only(broker)
        await native.start("127.0.0.1:0")
        self.nodes[name] = node

    async def stop(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                await node.native.stop()
        for node in self.nodes.values():
            await node.broker.stop()

    # What the nodes do not do by themselves yet.

    def _new_producer(self) -> ProducerStamp:
        return ProducerStamp(ProducerId(next(self._ids)), Epoch(0), SequenceNumber(0))

    @staticmethod
    def _share_groups(broker: Broker, first: Broker) -> None:
        groups: Any = first.groups
        broker.groups = groups
        broker.consume.groups = groups
        broker.consume.ledgers._groups = groups  # noqa: SLF001 - one roster for all, and below
        broker.consume._polling._groups = groups  # noqa: SLF001
        groups.watch(broker.consume._hear)  # noqa: SLF001
        groups.watch(broker.consume.ledgers._hear)  # noqa: SLF001

    @staticmethod
    def _lease_led_only(broker: Broker) -> None:
        polling: Any = broker.consume._polling  # noqa: SLF001
        open_all = polling._open_all  # noqa: SLF001

        def led(group: Any, member: str) -> list[HostedLedger]:
            return [one for one in open_all(group, member) if is_led(broker, one.partition.name)]

        polling._open_all = led  # noqa: SLF001
        polling._waiting._ledgers_of = led  # noqa: SLF001

    # Who leads.

    def create_topic(self, name: str, leaders: Sequence[str], **settings: Any) -> None:
        for node in self.nodes.values():
            topology, node.broker.topology = node.broker.topology, None
            topic = node.broker.create_topic(name, partitions=len(leaders), settings=settings)
            node.broker.topology = topology
            for partition, leader in zip(topic.partitions, leaders, strict=True):
                _guard(node, partition)
                if leader != node.name:
                    partition.leadership.follow(self._epoch, Copied())
        self.view.lead(name, leaders)

    def leaders(self, topic: str) -> list[str | None]:
        return [one.node for one in self.view.leaders_of(TopicName(topic))]

    def coordinator(self, route: ToCoordinator) -> str | None:
        topic, number = _home(self, route)
        return self.view.leaders_of(topic)[number].node

    async def move(self, topic: str, number: int, to: str | None, *, pause_s: float = 0.0) -> None:
        """Let another node lead a partition, or none; the log of the old leader is copied first."""
        leaders = self.leaders(topic)
        old = leaders[number]
        self._epoch = Epoch(self._epoch + 1)
        if old is not None:
            source = self[old].partition(topic, number)
            source.leadership.follow(self._epoch, Copied())
            source.wake()
        leaders[number] = None
        self.view.lead(topic, leaders)
        await asyncio.sleep(pause_s)
        if to is None:
            return
        await self.copy(topic, number, to)
        leaders[number] = to
        self.view.lead(topic, leaders)

    async def copy(self, topic: str, number: int, to: str) -> None:
        """Bring the copy of a node up to date with the longest there is, and let it lead."""
        copies = [node.partition(topic, number) for node in self.nodes.values()]
        source = max(copies, key=lambda one: one.log.end_offset)
        node = self[to]
        target = node.partition(topic, number)
        target.leadership.follow(self._epoch, Copied())
        replica = Replica(node.broker.topic(topic), target, node.broker.clock)
        for segment in source.log.segments:
            own = target.log.segments[-1]
            start = own.size if segment.base_offset == own.base_offset else 0
            if segment.base_offset < own.base_offset or start == segment.size:
                continue
            raw = segment.file.read(Position(start), segment.size - start)
            await replica.append_stored(
                memoryview(raw), epoch=self._epoch, segment_base=segment.base_offset
            )
        if target.log.durable_offset < target.log.end_offset:
            await target.durable()
        target.leadership.lead(self._epoch, None)

    async def kill(self, name: str, *, heir: str | None = None, pause_s: float = 0.0) -> None:
        """End a node as kill -9 does; another leads and coordinates in its place a little later."""
        node = self[name]
        node.is_up = False
        for connection in list(node.native._connections):  # noqa: SLF001 - without a farewell
            connection.abort()
        await node.native.stop()
        await asyncio.sleep(pause_s)
        self.view.leave(name)
        for topic in list(self.view.topics):
            for number, leader in enumerate(self.leaders(topic)):
                if leader == name and topic.startswith("__"):
                    leaders = self.leaders(topic)
                    leaders[number] = heir
                    self.view.lead(topic, leaders)
                elif leader == name:
                    await self.move(topic, number, heir)

    def total(self, operation: Operation) -> int:
        """Return how often something was asked of all nodes."""
        return sum(node.asked[operation] for node in self.nodes.values())


def is_led(broker: Broker, name: TopicPartition) -> bool:
    partition = broker.topic(name.topic).partition(name.partition)
    return partition.leadership.role is Role.LEADER


def _guard(node: Node, partition: Partition) -> None:
    check: Any = partition.check_offset

    def check_led(offset: Offset) -> None:
        node.check_led(partition)
        check(offset)

    partition.check_offset = check_led  # type: ignore[method-assign]


def _renewed(*, producer_id: int, epoch: int) -> ProducerStamp:
    return ProducerStamp(ProducerId(producer_id), Epoch(epoch + 1), SequenceNumber(0))


def _home(fleet: Fleet, route: ToCoordinator) -> tuple[Any, int]:
    service: Any = Service(next(iter(fleet.nodes.values())).broker)
    topic, number = service.cluster._home_of(route)  # noqa: SLF001 - the rule of the nodes
    return topic, number


async def elapse(seconds: float) -> None:
    """Let virtual time pass."""
    await asyncio.sleep(seconds)


def leaders_by_turns(partitions: int, names: Sequence[str]) -> list[str]:
    """Return a leader for each partition."""
    return [names[place % len(names)] for place in range(partitions)]
