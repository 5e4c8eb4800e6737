"""Two brokers in one process that know who leads what; a move copies logs as replication would."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from goqueue.base.errors import DeadlineExceededError, NodeFencedError
from goqueue.base.ids import Epoch, LeaderEpoch, NodeId, Offset, PartitionId, TopicName
from goqueue.base.ids import TopicPartition as Place
from goqueue.config.model import BrokerConfig
from goqueue.core.delivery.runs import set_of
from goqueue.core.delivery.settle import Settled
from goqueue.core.groups.member import JoinRequest
from goqueue.core.record.message import Draft
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.replica import Replica
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import PollLimits
from goqueue.runtime.queue.settlements import Settlement
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.runtime.topology import IdBlock, PartitionLeader
from goqueue.testing.conservation_checker import ConservationChecker
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.sim import Simulation
from goqueue.testing.sim.broker import SimPool
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Kind, Packet
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation
from tests.runtime.grants import POLLING, PUBLISHING, SETTLING
from tests.runtime.test_leadership import Replicas
from tests.service.views import SetView

A, B = NodeId("a"), NodeId("b")
ORDERS = "orders"
COPY_BYTES = 1 << 20
LINK_SECONDS = 0.001


def place(number: int, topic: str = ORDERS) -> Place:
    return Place(TopicName(topic), PartitionId(number))


class NodeTopology:
    """What one of the brokers knows of the cluster."""

    def __init__(self, cluster: "TwoNodes", node: NodeId) -> None:
        self._cluster = cluster
        self.node = node

    def check_live(self) -> None:
        if self.node in self._cluster.fenced:
            raise NodeFencedError("the lease of this node is over")

    @property
    def nodes(self) -> Sequence[NodeId]:
        return [A, B]

    @property
    def view(self) -> SetView:
        return SetView({A: "", B: ""})

    async def catch_up(self) -> None:
        """Know everything at once."""

    def leader_of(self, where: Place) -> PartitionLeader:
        return self._cluster.leaders[where]

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
        cluster = self._cluster
        await asyncio.sleep(LINK_SECONDS)
        cluster.requests += 1
        if cluster.is_cut:
            await asyncio.sleep(timeout_s)
            raise DeadlineExceededError("nobody answers")
        broker = cluster.brokers[to]
        assert broker.views is not None
        peer = PeerIdentity("c", self.node, self.node)
        try:
            async with asyncio.timeout(timeout_s):
                sent = msgspec.msgpack.encode(header)
                handler = broker.views.handlers()[operation]
                reply = await handler(peer, sent, memoryview(b""))
        except TimeoutError as error:
            raise DeadlineExceededError("nobody answers") from error
        await asyncio.sleep(LINK_SECONDS)
        if cluster.is_cut:
            raise DeadlineExceededError("the answer was lost")
        answer = memoryview(msgspec.msgpack.encode(reply.header))
        return Packet(operation, Kind.REPLY, 1, answer, memoryview(b""))

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
        assert (kind, owner >= 0, above >= 0) == ("producer", True, True)
        self._cluster.blocks += 1
        return IdBlock(self._cluster.blocks * 64_000 + 63_001, 1_000)


class TwoNodes:
    """Brokers ``a`` and ``b``; every partition is led by one of them and copied when it moves."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.leaders: dict[Place, PartitionLeader] = {}
        self.brokers: dict[NodeId, Broker] = {}
        self.is_cut = False
        self.fenced: set[NodeId] = set()
        self.requests = self.blocks = 0
        self.checker = ConservationChecker()

    async def start(self, *, partitions: int = 2) -> "TwoNodes":
        """Start both; ``a`` leads what has an even number, and all groups."""
        for node in (A, B):
            self.brokers[node] = Broker(
                BrokerConfig(),
                MemoryDisk(),
                sync_pool=SimPool(self.simulation),
                topology=NodeTopology(self, node),
            )
            await self.brokers[node].start()
        for broker in self.brokers.values():
            # In one step: both have the same topics.
            count = len(broker.state.partitions)
            broker.create_topic(STATE_TOPIC, partitions=count, by_broker=True)
            topic = broker.create_topic(ORDERS, partitions=partitions)
            topic.states.on_made = self._state_made
        states = [place(number, STATE_TOPIC) for number in self.brokers[A].state.partitions]
        for where in states:
            await self._begin(where, A)
        for number in range(partitions):
            await self._begin(place(number), A if number % 2 == 0 else B)
        return self

    def _state_made(self, state: Partition) -> None:
        state.leadership.lead(Epoch(self.leaders[state.name].epoch), None)

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()

    async def _begin(self, where: Place, leader: NodeId) -> None:
        other = B if leader == A else A
        self.leaders[where] = PartitionLeader(leader, LeaderEpoch(1))
        for log in self._logs(other, where):
            log.leadership.follow(Epoch(1), Replicas(log))
        for log in self._logs(leader, where):
            log.leadership.lead(Epoch(1), None)
        await self.brokers[leader].coordinators.gain(where)

    def _topic(self, node: NodeId, where: Place) -> Topic:
        return self.brokers[node].topic(where.topic)

    def _logs(self, node: NodeId, where: Place) -> list[Partition]:
        topic = self._topic(node, where)
        state = topic.state_of(where.partition)
        return [topic.partition(where.partition), *([] if state is None else [state])]

    # Who leads what.

    def leader(self, where: Place) -> Broker:
        node = self.leaders[where].node
        assert node is not None
        return self.brokers[node]

    def coordinator_place(self, group: str) -> Place:
        return place(self.brokers[A].state.partition_of(group), STATE_TOPIC)

    def coordinator(self, group: str = "g") -> Broker:
        return self.leader(self.coordinator_place(group))

    async def move(self, where: Place, pause_s: float = 0) -> None:
        """Let the other node lead a partition, with everything that was written."""
        old, epoch = self.leaders[where]
        assert old is not None
        new = B if old == A else A
        for log in self._logs(old, where):
            log.leadership.follow(Epoch(epoch), Replicas(log))
        await self.brokers[old].coordinators.lose(where)
        self.leaders[where] = PartitionLeader(new, LeaderEpoch(epoch + 1))
        await asyncio.sleep(pause_s)
        await self._copy(old, new, where)
        for log in self._logs(new, where):
            log.leadership.lead(Epoch(epoch + 1), None)
        await self.brokers[new].coordinators.gain(where)

    async def _copy(self, old: NodeId, new: NodeId, where: Place) -> None:
        source, target = self._topic(old, where), self._topic(new, where)
        pairs = [(source.partition(where.partition), target.partition(where.partition))]
        state = source.state_of(where.partition)
        if state is not None:
            pairs.append((state, target.states.open(where.partition)))
        for one, other in pairs:
            epoch = other.leadership.epoch
            other.leadership.follow(epoch, Replicas(other))
            replica = Replica(target, other, self.brokers[new].clock)
            while other.log.end_offset < one.log.end_offset:
                at, end = Offset(other.log.end_offset), one.log.end_offset
                piece = one.reader.read(at, end_offset=end, bytes_max=COPY_BYTES)
                await replica.append_stored(memoryview(bytes(piece.frames)), epoch=epoch)
            await other.durable()

    # What clients do.

    async def publish(self, number: int, *values: str) -> None:
        topic = self.leader(place(number)).topic(ORDERS)
        drafts = [
            (Draft(value=value.encode(), timestamp_us=topic.clock.now_us()), number)
            for value in values
        ]
        for outcome in await topic.publish_drafts(PUBLISHING, drafts):
            assert isinstance(outcome, tuple), outcome
            self.checker.sent(place(outcome[0]), [outcome[1]])

    async def join(self, client: str = "c", group: str = "g", **options: object) -> str:
        request = JoinRequest(client_id=client, topics=(ORDERS,), options=options)
        _, member = await self.coordinator(group).groups.join(group, request)
        return member

    async def poll(
        self,
        node: NodeId,
        member: str,
        *,
        group: str = "g",
        seen: int = 0,
        wait_ms: int = 0,
        limit: int = 100,
    ) -> list[Leased]:
        consume = self.brokers[node].consume
        demand = PollLimits(limit, 1_000_000, wait_ms)
        poll = await consume.begin_poll(POLLING, group, member, None, demand, seen=seen)
        if poll.ready is not None:
            await poll.ready
        for part in poll.parts:
            offsets = set_of(part.order)
            self.checker.delivered(group, part.partition, offsets, part.failures)
        return poll.parts

    async def ack(self, part: Leased, *, group: str = "g", member: str | None = None) -> Settled:
        offsets = set_of(part.order)
        one = Settlement(partition=part.partition, nonce=part.nonce, verb="ack", offsets=offsets)
        consume = self.leader(part.partition).consume
        (settled,) = await consume.settle(SETTLING, group, member, [one])
        refused = {one.offset for one in settled.refused}
        self.checker.settled(group, part.partition, [one for one in offsets if one not in refused])
        return settled

    def check(self) -> None:
        """Compare what was confirmed with every ledger."""
        for broker in self.brokers.values():
            for hosted in broker.consume.ledgers:
                name = hosted.partition.name
                self.checker.compare(hosted.group, name, hosted.ledger, hosted.view())
        self.checker.check()
