"""Some brokers of a cluster in one simulated process: a plain replication, and links that fail.

What stands in for the cluster here is as simple as can be: a controller that knows everything,
frames copied from leaders to followers every few milliseconds, requests as calls with delays. The
brokers, their partitions and their transactions are the real ones.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from goqueue.base.errors import (
    DeadlineExceededError,
    GoQueueError,
)
from goqueue.base.ids import Epoch, LeaderEpoch, NodeId, Offset, TopicPartition
from goqueue.config.model import BrokerConfig
from goqueue.core.cluster.image import ClusterImage
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.replica import Replica
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.runtime.topology import PartitionLeader
from goqueue.runtime.tx.tx_link import TX_TOPIC
from goqueue.testing.sim.broker import SimPool
from goqueue.testing.sim.simulation import Simulation
from goqueue.wire.calls import Call
from goqueue.wire.peer_calls import PeerOperation
from tests.sim.tx_nodes import HighWatermark, Node, NodeBroker, Request, View

T = TypeVar("T")
COPY_SECONDS: Final = 0.004
COPY_BYTES: Final = 1 << 20
DETECTION_SECONDS: Final = (0.2, 1.0)
VIEW_SECONDS: Final = (0.000_1, 0.05)


@dataclass
class Place:
    """The truth about one partition."""

    leader: NodeId | None
    epoch: int
    in_sync: list[NodeId]
    starts: dict[int, int] = field(default_factory=dict)
    """Where the log of each epoch's leader ended when it began to lead."""
    heard: dict[NodeId, int] = field(default_factory=dict)
    """The last epoch in which each node changed its role."""
    fitted: dict[NodeId, int] = field(default_factory=dict)
    """The last epoch whose leader's log each node has cut its own to."""


class Fleet:
    """Nodes, the truth about their partitions, and the links between them."""

    def __init__(self, simulation: Simulation, names: Sequence[str] = ("a", "b", "c")) -> None:
        self.simulation = simulation
        self.random = Random(simulation.chance.getrandbits(64))
        self.nodes = {NodeId(name): Node(NodeId(name)) for name in names}
        self.places: dict[TopicPartition, Place] = {}
        self.image = ClusterImage()
        self.loss = 0.0
        """How likely a request or an answer is lost, and a request comes twice."""
        self.delay_s = (0.000_1, 0.003)
        self.cut_off: set[NodeId] = set()
        self.copy_s = COPY_SECONDS
        self.held_up: set[TopicPartition] = set()
        """Partitions whose followers get nothing: what is appended there is not committed."""
        self.tied: dict[TopicPartition, TopicPartition] = {}
        """Partitions that are led where others are."""
        self.counts: dict[PeerOperation, int] = {}
        self.before_request: (
            Callable[[NodeId, NodeId, PeerOperation, Call], Awaitable[None]] | None
        ) = None
        self._topics: dict[str, int] = {}
        self.context: Context = copy_context()
        """Belongs to no node: what runs in it goes on whoever dies."""
        self._tasks: list[asyncio.Task[None]] = []

    # Starting.

    async def start(self, topics: Mapping[str, int]) -> None:
        """Start all nodes with the same topics; leaders are dealt out in turn."""
        self._topics = dict(topics)
        for node in self.nodes.values():
            await self.start_node(node.name)
        for node in self.nodes.values():
            self._run_in(node, self._make_topics, node)
        names = list(self.nodes)
        for row, place in enumerate(
            partition.name
            for topic in self.nodes[names[0]].up.topics.values()
            for partition in topic.partitions
        ):
            self.places[place] = Place(None, 0, list(names))
            for node in self.nodes.values():
                self.partition(node.name, place).leadership.follow(Epoch(0), HighWatermark())
            self.elect(place, names[row % len(names)])
        self._tasks.append(asyncio.get_running_loop().create_task(self._copy_on()))
        await asyncio.sleep(0.5)

    def _make_topics(self, node: Node) -> None:
        broker = node.up
        for name, count in self._topics.items():
            broker.create_topic(name, partitions=count)
        for name, count in ((STATE_TOPIC, 1), (TX_TOPIC, 2)):
            broker.create_topic(name, partitions=count, by_broker=True)

    async def start_node(self, name: NodeId) -> None:
        """Start a process on the disk of a node."""
        node = self.nodes[name]
        node.host = self.simulation.host(name)
        node.is_fenced = False

        async def serve() -> None:
            pool = SimPool(self.simulation)
            broker = NodeBroker(
                BrokerConfig(), node.disk, sync_pool=pool, topology=View(self, node)
            )
            broker.producer_ids.check_life = lambda **_: None
            node.broker = broker
            await broker.start()

        await node.host.run(serve())
        for place, truth in self.places.items():
            self.partition(name, place).leadership.follow(Epoch(0), HighWatermark())
            node.view[place] = PartitionLeader(None, LeaderEpoch(truth.epoch))
            self._hear_soon(name, place)

    # Failing.

    async def kill(self, name: NodeId, *, power: bool = False) -> None:
        """Kill a node; what it leads goes to others when that was noticed."""
        node = self.nodes[name]
        assert node.host is not None, "started"
        node.host.kill()
        node.disk = node.disk.crash(torn=self.random) if power else node.disk.kill()
        node.host = node.broker = None
        node.view = {}
        await asyncio.sleep(self.random.uniform(*DETECTION_SECONDS))
        self._take_from(name)

    async def cut(self, name: NodeId) -> None:
        """Cut a node off; it fences itself before others take over."""
        self.cut_off.add(name)
        await asyncio.sleep(self.random.uniform(*DETECTION_SECONDS))
        self.nodes[name].is_fenced = True
        self._take_from(name)

    def heal(self, name: NodeId) -> None:
        """Connect a node again."""
        self.cut_off.discard(name)
        self.nodes[name].is_fenced = False
        for place in self.places:
            self._hear_soon(name, place)

    def _take_from(self, name: NodeId) -> None:
        for place, truth in self.places.items():
            if name in truth.in_sync and len(truth.in_sync) > 1:
                truth.in_sync.remove(name)
            if truth.leader == name:
                others = [one for one in truth.in_sync if self.is_reachable(one)]
                self.elect(place, others[0] if others else None)

    def is_reachable(self, name: NodeId) -> bool:
        """Return True if a node runs and is not cut off."""
        return self.nodes[name].broker is not None and name not in self.cut_off

    # Leading.

    def elect(self, place: TopicPartition, leader: NodeId | None) -> None:
        """Let a node lead a partition in a new epoch."""
        truth = self.places[place]
        assert leader is None or leader in truth.in_sync, "only who is in sync may lead"
        truth.leader, truth.epoch = leader, truth.epoch + 1
        for name in self.nodes:
            if self.is_reachable(name):
                self._hear_soon(name, place)

    def leader(self, place: TopicPartition) -> NodeId | None:
        """Return who leads a partition."""
        return self.places[place].leader

    def _hear_soon(self, name: NodeId, place: TopicPartition) -> None:
        """Let a node hear of the leader of a partition some time later."""
        delay_s = self.random.uniform(*VIEW_SECONDS)

        def hear() -> None:
            if self.is_reachable(name):
                node = self.nodes[name]
                assert node.host is not None
                task = node.host.begin(self._hear(node, place))
                task.add_done_callback(_look, context=self.context.copy())

        self.simulation.loop.call_later(delay_s, hear, context=self.context.copy())

    async def _hear(self, node: Node, place: TopicPartition) -> None:
        truth = self.places[place]
        if truth.heard.get(node.name, -1) >= truth.epoch and node.view[place].node == truth.leader:
            return
        truth.heard[node.name] = truth.epoch
        leader, epoch = truth.leader, truth.epoch
        node.view[place] = PartitionLeader(leader, LeaderEpoch(epoch))
        partition = self.partition(node.name, place)
        known = partition.leadership.replication
        marks = known if isinstance(known, HighWatermark) else HighWatermark()
        was_leading = partition.leadership.role is Role.LEADER
        is_state = place.topic in (TX_TOPIC, STATE_TOPIC)
        partition.leadership.follow(Epoch(epoch), marks)
        if was_leading and is_state:
            await node.up.coordinators.unload(place.topic, place.partition)
        if leader != node.name:
            while truth.epoch == epoch and epoch not in truth.starts:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(COPY_SECONDS)
            if truth.epoch == epoch:
                await self._fit(node, partition, truth)
            return
        if truth.epoch == epoch:
            truth.starts[epoch] = partition.log.end_offset
            truth.fitted[node.name] = epoch
            partition.leadership.lead(Epoch(epoch), marks)
            if is_state:
                await node.up.coordinators.load(place.topic, place.partition)

    async def _fit(self, node: Node, partition: Partition, truth: Place) -> None:
        """Cut what the leaders since then did not have when they began to lead."""
        epoch, last = truth.epoch, truth.fitted.get(node.name, -1)
        starts = [at for one, at in truth.starts.items() if last < one <= epoch]
        end = Offset(min([partition.log.end_offset, *starts]))
        if end < partition.log.end_offset:
            replica = Replica(node.up.topic(partition.name.topic), partition, node.up.clock)
            await replica.truncate(end, epoch=Epoch(epoch))
        truth.fitted[node.name] = epoch

    # Copying.

    async def _copy_on(self) -> None:
        while True:
            await asyncio.sleep(self.copy_s)
            for place, truth in self.places.items():
                await self._copy(place, truth)
            self._mend()

    def _mend(self) -> None:
        """Give leaders to partitions without one, and one leader to those that belong together."""
        for place, truth in self.places.items():
            if truth.leader is None:
                others = [one for one in truth.in_sync if self.is_reachable(one)]
                if others:
                    self.elect(place, others[0])
        for place, beside in self.tied.items():
            leader, truth = self.leader(beside), self.places[place]
            if truth.leader != leader and leader in truth.in_sync and self.is_reachable(leader):
                self.elect(place, leader)

    async def _copy(self, place: TopicPartition, truth: Place) -> None:
        """Bring followers up to date, and let the leader know what all of them have."""
        name = truth.leader
        if name is None or not self.is_reachable(name) or place in self.held_up:
            return
        leader = self.partition(name, place)
        if leader.leadership.role is not Role.LEADER or leader.leadership.epoch != truth.epoch:
            return
        for other in self.nodes:
            if other != name and self.is_reachable(other) and self._follows(other, place, truth):
                with contextlib.suppress(GoQueueError):
                    await self._copy_to(other, place, leader)
        self._advance(place, truth, leader)

    def _follows(self, name: NodeId, place: TopicPartition, truth: Place) -> bool:
        leadership = self.partition(name, place).leadership
        is_fitted = truth.fitted.get(name) == truth.epoch
        return is_fitted and leadership.role is Role.FOLLOWER and leadership.epoch == truth.epoch

    async def _copy_to(self, name: NodeId, place: TopicPartition, leader: Partition) -> None:
        node, follower = self.nodes[name], self.partition(name, place)
        end = leader.log.end_offset
        if follower.log.end_offset < end and follower.rolling is None:
            piece = leader.reader.read(
                follower.log.end_offset, end_offset=end, bytes_max=COPY_BYTES
            )
            replica = Replica(node.up.topic(place.topic), follower, node.up.clock)
            assert node.host is not None
            frames = memoryview(bytes(piece.frames))
            task = node.host.begin(replica.append_stored(frames, epoch=follower.leadership.epoch))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait([task], timeout=0.1)
            if task.done():
                task.exception()

    def _advance(self, place: TopicPartition, truth: Place, leader: Partition) -> None:
        marks = leader.leadership.replication
        assert isinstance(marks, HighWatermark)
        durable: list[int] = []
        for name in self.nodes:
            if name in truth.in_sync:
                node = self.nodes[name]
                durable.append(_reached(self.partition(name, place)) if node.broker else 0)
        high = min(durable)
        if high > marks.high_watermark:
            marks.high_watermark = Offset(high)
            assert truth.leader is not None
            self._run_in(self.nodes[truth.leader], leader.note_high_watermark)
        for name in self.nodes:
            if name == truth.leader or not self.is_reachable(name):
                continue
            if not self._follows(name, place, truth):
                continue
            follower = self.partition(name, place)
            told = follower.leadership.replication
            assert isinstance(told, HighWatermark)
            told.high_watermark = Offset(
                max(told.high_watermark, min(marks.high_watermark, follower.log.end_offset))
            )
            is_caught_up = follower.log.durable_offset >= leader.log.end_offset
            if name not in truth.in_sync and is_caught_up:
                truth.in_sync.append(name)

    # Calling.

    def partition(self, name: NodeId, place: TopicPartition) -> Partition:
        """Return a partition as a node has it."""
        return self.nodes[name].up.topic(place.topic).partition(place.partition)

    def led(self, place: TopicPartition) -> Partition:
        """Return a partition as its leader has it."""
        leader = self.leader(place)
        assert leader is not None
        return self.partition(leader, place)

    def _run_in(self, node: Node, work: Callable[..., T], *args: Any) -> T:
        assert node.host is not None, "started"
        return node.host._context.copy().run(work, *args)  # noqa: SLF001

    async def call(
        self,
        to: NodeId,
        work: Callable[[Broker], Coroutine[Any, Any, T]],
        *,
        caller: NodeId | None = None,
        timeout_s: float = 5.0,
    ) -> T:
        """Have a node do something, over a link that may lose or repeat it."""
        request = Request(self, to, caller, work)
        # A client repeats by itself what may be repeated.
        times = 2 if caller is not None and self.is_lost() else 1
        for _ in range(times):
            if not self.is_lost():
                self.later(request.deliver)
        try:
            async with asyncio.timeout(timeout_s):
                return await request.answer
        except TimeoutError as error:
            raise DeadlineExceededError(f"{to} did not answer") from error

    def later(self, work: Callable[..., None], *args: object) -> None:
        """Do something after as long as a message takes, whoever dies meanwhile."""
        loop, context = self.simulation.loop, self.context.copy()
        loop.call_later(self._delay(), work, *args, context=context)

    def is_lost(self) -> bool:
        """Decide whether a message is lost, late or sent twice."""
        return self.random.random() < self.loss

    def _delay(self) -> float:
        delay_s = self.random.uniform(*self.delay_s)
        return delay_s * 100 if self.is_lost() else delay_s


def _look(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        error = task.exception()
        if error is not None and not isinstance(error, GoQueueError):
            raise error


def _reached(partition: Partition) -> Offset:
    """Return what a replica counts for: where acks do not wait for the disk, all it has."""
    log = partition.log
    return log.durable_offset if partition.settings.is_fsync else log.end_offset
