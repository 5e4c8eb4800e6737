"""The nodes of a fleet: their disks and processes, what each knows, and requests between them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from unittest.mock import patch

import msgspec

from goqueue.base.errors import (
    ConnectionLostError,
    GoQueueError,
    NodeFencedError,
    from_code,
)
from goqueue.base.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from goqueue.core.cluster import commands
from goqueue.core.cluster.blocks import allocate
from goqueue.core.replication.epochs import EpochHistory
from goqueue.runtime import broker as broker_module
from goqueue.runtime.broker import Broker
from goqueue.runtime.broker_life import open_all
from goqueue.runtime.log.leadership import Mending
from goqueue.runtime.topology import IdBlock, PartitionLeader
from goqueue.storage.log_notes import Gap
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.sim.host import Host
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Kind, Packet
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation
from tests.service.views import SetView

if TYPE_CHECKING:
    from tests.sim.tx_fleet import Fleet

T = TypeVar("T")


class HighWatermark:
    """What a node knows of the replicas of one of its partitions."""

    def __init__(self) -> None:
        self.high_watermark = Offset(0)
        self.is_alone = False

    def check_append(self) -> None:
        """Let leaders append."""

    def check_live(self) -> None:
        """Let leaders answer."""

    def appended(self, end_offset: Offset) -> None:
        """Look by polling instead."""

    def synced(self, durable_offset: Offset) -> None:
        """Look by polling instead."""

    def trimmed(self, start_offset: Offset) -> None:
        """Never happens here."""

    def replicas_with(self, end_offset: Offset) -> int:
        """Count nothing."""
        return int(end_offset >= 0)

    @property
    def epochs(self) -> EpochHistory:
        """Know of none."""
        return EpochHistory()

    async def mend(self, gap: Gap) -> Mending:
        """Have nothing of what is damaged."""
        assert gap.start_offset < gap.end_offset
        return Mending.LOST


class NodeBroker(Broker):
    """A broker whose topics were made by hand, and are there again after a restart.

    What a group has of a partition is kept with the group here, as on one node: where both are led
    by one node, transactions are the same.
    """

    def _make_state(self) -> None:
        self._is_beside = False
        super()._make_state()

    def _make_hosts(self) -> None:
        with patch.object(broker_module, "views_of", lambda *_, **__: None):
            super()._make_hosts()

    async def start(self) -> None:
        self.catalogue.check_clustered = lambda: None  # type: ignore[method-assign]
        await super().start()
        await open_all(self)
        for topic in self.topics.values():
            self.coordinators.attach(topic)


@dataclass(eq=False)
class Node:
    """A disk, and the process that serves it while there is one."""

    name: NodeId
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    host: Host | None = None
    broker: Broker | None = None
    view: dict[TopicPartition, PartitionLeader] = field(default_factory=dict)
    """Who leads what, as far as the node has heard."""
    is_fenced: bool = False

    @property
    def up(self) -> Broker:
        """The broker that runs now."""
        assert self.broker is not None, "started"
        return self.broker


class View:
    """The topology of one node."""

    def __init__(self, fleet: "Fleet", node: Node) -> None:
        self._fleet = fleet
        self._node = node

    @property
    def node(self) -> NodeId:
        return self._node.name

    @property
    def nodes(self) -> Sequence[NodeId]:
        return list(self._fleet.nodes)

    @property
    def view(self) -> SetView:
        return SetView(dict.fromkeys(self._fleet.nodes, ""))

    def check_live(self) -> None:
        if self._node.is_fenced:
            raise NodeFencedError("the lease of this node is over")

    async def catch_up(self) -> None:
        """Know everything at once."""

    def leader_of(self, place: TopicPartition) -> PartitionLeader:
        self._node.up.topic(place.topic).partition(place.partition)
        return self._node.view.get(place, PartitionLeader(None, LeaderEpoch(0)))

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
        await asyncio.sleep(0.01)
        command = commands.AllocateIds(kind=kind, owner=owner, above=above)
        decision = allocate(self._fleet.image, command, 0)
        for event in decision.events:
            self._fleet.image.apply(event)
        return IdBlock(decision.reply.first, decision.reply.count)

    async def request(
        self,
        to: NodeId,
        operation: PeerOperation,
        header: Call,
        payload: Sequence[Buffer] = (),
        *,
        timeout_s: float,
    ) -> Packet:
        assert not payload
        raw = msgspec.msgpack.encode(header)
        self._fleet.counts[operation] = self._fleet.counts.get(operation, 0) + 1

        async def answer(broker: Broker) -> bytes:
            assert broker.transactions.cluster is not None
            handle = broker.transactions.cluster.handlers()[operation]
            peer = PeerIdentity("cluster", self.node, "disk")
            return msgspec.msgpack.encode(await handle(peer, raw, memoryview(b"")))

        before = self._fleet.before_request
        if before is not None:
            await before(self.node, to, operation, header)
        answered = await self._fleet.call(to, answer, caller=self.node, timeout_s=timeout_s)
        return Packet(operation, Kind.REPLY, 0, memoryview(answered), memoryview(b""))


class Request(Generic[T]):
    """A request on its way to a node, and its answer on the way back."""

    def __init__(
        self,
        fleet: "Fleet",
        to: NodeId,
        caller: NodeId | None,
        work: Callable[[Broker], Coroutine[Any, Any, T]],
    ) -> None:
        self._fleet = fleet
        self._to = to
        self._caller = caller
        self._work = work
        self.answer: asyncio.Future[T] = fleet.simulation.loop.create_future()

    @property
    def _is_cut(self) -> bool:
        return bool({self._to, self._caller} & self._fleet.cut_off)

    def deliver(self) -> None:
        """Let the node begin with it."""
        node = self._fleet.nodes[self._to]
        if self._is_cut:
            return
        if node.broker is None:
            if not self.answer.done():
                self.answer.set_exception(ConnectionLostError(f"{self._to} is not there"))
            return
        assert node.host is not None
        task = node.host.begin(self._work(node.broker))
        task.add_done_callback(self._done, context=self._fleet.context.copy())

    def _done(self, task: "asyncio.Task[T]") -> None:
        if not task.cancelled():
            task.exception()
            if not self._fleet.is_lost():
                self._fleet.later(self._settle, task)

    def _settle(self, task: "asyncio.Task[T]") -> None:
        if self.answer.done() or self._is_cut:
            return
        error = task.exception()
        if isinstance(error, GoQueueError):
            self.answer.set_exception(from_code(error.code, error.message))
        elif error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(task.result())
