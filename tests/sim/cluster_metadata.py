"""Metadata for simulated nodes without a quorum: one controller decides, nodes apply later."""

import asyncio
from collections.abc import Sequence
from contextvars import copy_context

from goqueue.base.errors import DeadlineExceededError, GoQueueError, LeaderNotAvailableError
from goqueue.base.ids import NodeEpoch, NodeId
from goqueue.core.cluster.commands import (
    Command,
    FenceNode,
    FoundCluster,
    Proposal,
    RegisterNode,
    UnfenceNode,
)
from goqueue.core.cluster.events import Event, entries
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.replies import NodeReply, Reply
from goqueue.core.cluster.verbs import decide
from goqueue.runtime.cluster.image_source import ImageListener
from goqueue.testing.sim.host import Host
from goqueue.testing.sim.simulation import Simulation
from tests.sim.cluster_links import SimPeers

CONTROLLER = "controller"
CLUSTER_ID = "sim"
DEAD_MS = 1_500
PROPOSE_SECONDS = 5.0


class SimController:
    """Decides, remembers every entry, and fences nodes that were not heard of."""

    def __init__(self, simulation: Simulation, peers: SimPeers) -> None:
        self.image = ClusterImage()
        self.log: list[list[Event]] = []
        self.is_stopped = False
        self.unclean = 0
        self._loop = simulation.loop
        self._peers = peers
        self._context = copy_context()
        self._followers: list[SimMetadata] = []
        self._heard: dict[NodeId, tuple[NodeEpoch, int]] = {}
        self.decide(FoundCluster(cluster_id=CLUSTER_ID))

    def now_ms(self) -> int:
        return int(self._loop.time() * 1_000)

    def start(self) -> None:
        self._loop.call_later(0.1, self._tick, context=self._context)

    def decide(self, command: Command) -> Reply:
        """Decide, apply and spread."""
        decision = decide(self.image, Proposal(command=command), now_ms=self.now_ms())
        for entry in entries(decision.events):
            for event in entry:
                self.image.apply(event)
            self.log.append(entry)
        self.unclean = self.image.unclean_elections
        self._spread()
        return decision.reply

    def follow(self, follower: "SimMetadata") -> None:
        """Let a process have every entry, from now on as they come."""
        self._followers = [one for one in self._followers if not one.host.is_dead]
        self._followers.append(follower)
        self._send(follower)

    def heard(self, node: NodeId, epoch: NodeEpoch) -> None:
        """Take a heartbeat."""
        known = self.image.nodes.get(node)
        if known is None or known.epoch != epoch:
            return
        self._heard[node] = (epoch, self.now_ms())
        if known.is_fenced:
            self.decide(UnfenceNode(node=node, epoch=epoch))

    def _tick(self) -> None:
        if not self.is_stopped:
            for node, (epoch, heard_ms) in list(self._heard.items()):
                if self.now_ms() - heard_ms > DEAD_MS:
                    del self._heard[node]
                    if self.image.nodes[node].epoch == epoch:
                        self.decide(FenceNode(node=node, epoch=epoch))
            # What was lost on the way is sent again.
            self._spread()
        self._loop.call_later(0.1, self._tick, context=self._context)

    def _spread(self) -> None:
        for follower in self._followers:
            self._send(follower)

    def _send(self, follower: "SimMetadata") -> None:
        if follower.applied < len(self.log) and not follower.host.is_dead:
            delay = self._peers.latency()
            upto = len(self.log)
            self._loop.call_later(delay, self._arrive, follower, upto, context=self._context)

    def _arrive(self, follower: "SimMetadata", upto: int) -> None:
        if (CONTROLLER, follower.node) not in self._peers.cuts:
            context = follower.host.context
            self._loop.call_soon(follower.apply, upto, context=context)


class SimMetadata:
    """What one process has applied."""

    def __init__(self, controller: SimController, peers: SimPeers, node: NodeId, host: Host):
        self.image = ClusterImage()
        self.node_epoch: NodeEpoch | None = None
        self.node = node
        self.host = host
        self.applied = 0
        self.heard_ms = -(10**9)
        """When the last heartbeat was sent that the controller answered."""
        self._controller = controller
        self._peers = peers
        self._listeners: list[ImageListener] = []
        self._news = asyncio.Event()

    def watch(self, listener: ImageListener) -> None:
        self._listeners.append(listener)

    def apply(self, upto: int) -> None:
        """Apply the entries up to a number, one after the other."""
        while self.applied < min(upto, len(self._controller.log)):
            entry: Sequence[Event] = self._controller.log[self.applied]
            self.applied += 1
            for event in entry:
                self.image.apply(event)
            for listener in self._listeners:
                listener(entry)
        self._news.set()

    async def propose(self, command: Command) -> Reply:
        """Have the controller decide; return when that is applied here."""
        deadline = asyncio.get_running_loop().time() + PROPOSE_SECONDS
        reply = await self._ask(lambda: self._controller.decide(command))
        wanted = len(self._controller.log)
        while self.applied < wanted:
            self._news.clear()
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._news.wait(), max(left, 0))
            except TimeoutError as error:
                raise DeadlineExceededError("not applied here in time") from error
        assert reply is not None
        return reply

    async def _ask(self, what: "object") -> Reply | None:
        """Do something at the controller, if it can be reached and runs."""
        await asyncio.sleep(self._peers.latency())
        controller = self._controller
        if (self.node, CONTROLLER) in self._peers.cuts or controller.is_stopped:
            await asyncio.sleep(1.0)
            raise LeaderNotAvailableError("the controller cannot be reached")
        try:
            reply: Reply | None = what()  # type: ignore[operator]
        except GoQueueError as error:
            await asyncio.sleep(self._peers.latency())
            raise type(error)(*error.args) from error
        await asyncio.sleep(self._peers.latency())
        if (CONTROLLER, self.node) in self._peers.cuts:
            await asyncio.sleep(1.0)
            raise DeadlineExceededError("the controller did not answer")
        return reply

    async def register(self, command: RegisterNode) -> None:
        """Ask until the controller has let this process in."""
        while self.node_epoch is None:
            try:
                reply = await self.propose(command)
            except GoQueueError:
                await asyncio.sleep(0.2)
                continue
            assert isinstance(reply, NodeReply)
            self.node_epoch = reply.epoch

    async def beat(self) -> None:
        """Send one heartbeat."""
        sent_ms = self._controller.now_ms()
        epoch = self.node_epoch
        assert epoch is not None
        try:
            await self._ask(lambda: self._controller.heard(self.node, epoch))
        except GoQueueError:
            return
        self.heard_ms = sent_ms
