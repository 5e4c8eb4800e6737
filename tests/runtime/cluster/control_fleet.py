"""Whole control planes of nodes in one simulated machine, each with a disk and real connections."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import NodeId
from goqueue.core.cluster.commands import AlterPartitions, Command, InSyncMember, PartIsr
from goqueue.core.cluster.events import Event, encode
from goqueue.core.cluster.membership import ClusterTimers
from goqueue.core.cluster.replies import Reply
from goqueue.core.cluster.states import NodeStatus
from goqueue.runtime.clock import SystemClock
from goqueue.runtime.cluster.consensus import ConsensusMaker
from goqueue.runtime.cluster.node import Node
from goqueue.runtime.cluster.node_config import ListenerAddresses, NodeConfig
from goqueue.service.peers import Peers
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.sim.host import Host
from goqueue.testing.sim.simulation import Simulation
from goqueue.transport.cluster.server import ClusterServer

NAMES = ("a", "b", "c")
FAST = ClusterTimers(heartbeat_ms=500, suspect_ms=1_000, dead_ms=2_000, lease_ms=1_500)


@dataclass
class Place:
    """A node's disk and port, and its process while there is one."""

    name: NodeId
    port: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    host: Host | None = None
    node: Node | None = None
    server: ClusterServer | None = None
    task: "asyncio.Task[None] | None" = None
    failure: GoQueueError | None = None


class ControlFleet:
    """Nodes by name; invariants are checked whenever one of them applies something."""

    def __init__(
        self,
        simulation: Simulation,
        names: Sequence[str] = NAMES,
        timers: ClusterTimers | None = None,
    ) -> None:
        self.simulation = simulation
        self.random = Random(simulation.chance.getrandbits(64))
        self.timers = timers or ClusterTimers()
        self.places = {
            NodeId(name): Place(NodeId(name), 7_000 + number) for number, name in enumerate(names)
        }
        self.copying: asyncio.Task[None] | None = None
        self.maker: ConsensusMaker | None = None
        """Makes what keeps the metadata; None: the embedded quorum."""
        self.versions: dict[tuple[str, int], bytes] = {}
        """A digest of what was applied up to each version, by whichever node was first."""

    def add(self, name: str) -> None:
        """Make room for one more node, which does not run yet."""
        self.places[NodeId(name)] = Place(NodeId(name), 7_000 + len(self.places))

    def config(self, name: str, names: Iterable[str] | None = None) -> NodeConfig:
        """Return the settings of a node."""
        wanted = list(names or self.places)
        peers = {
            NodeId(one): f"127.0.0.1:{self.places[NodeId(one)].port}"
            for one in wanted
            if one != name
        }
        return NodeConfig(node=NodeId(name), peers=peers, timers=self.timers, leave_ms=5_000)

    def start(self, name: str, *, config: NodeConfig | None = None, port: int = 0) -> Place:
        """Start the process of a node."""
        place = self.places[NodeId(name)]
        place.host = self.simulation.host(name)
        place.failure = None
        work = self._boot(place, config or self.config(name), port or place.port)
        place.task = place.host.begin(work)
        return place

    async def _boot(self, place: Place, config: NodeConfig, port: int) -> None:
        node = Node(config, place.disk, SystemClock(), self.maker)
        server = ClusterServer(Peers(node), watcher=node)
        node.attach(server)
        place.node, place.server = node, server
        try:
            node.open()
            self._watch(node)
            await server.start(f"127.0.0.1:{port}")
            await node.start(ListenerAddresses(cluster=f"127.0.0.1:{port}"))
        except GoQueueError as error:
            place.failure = error
            await server.stop()
            await node.stop()
            return
        node.serve()

    def _watch(self, node: Node) -> None:
        """Compare what nodes apply: images of one version are equal."""

        def seen(events: Sequence[Event] | None) -> None:
            image = node.metadata.image
            if events:
                body = b"".join(map(encode, events))
                self._agree(image.cluster_id, image.version, body)

        node.metadata.watch(seen)

    def _agree(self, cluster: str, version: int, body: bytes) -> None:
        known = self.versions.setdefault((cluster, version), body)
        assert known == body, f"version {version} is two things"

    # Faults.

    def kill(self, name: str) -> None:
        """End a process as SIGKILL does."""
        place = self.places[NodeId(name)]
        assert place.host is not None
        place.host.kill()
        place.disk = place.disk.kill()
        place.node = place.server = None

    def cut_power(self, name: str) -> None:
        """End a process and lose what is not synced."""
        place = self.places[NodeId(name)]
        assert place.host is not None
        place.host.kill()
        place.disk = place.disk.crash(torn=self.random)
        place.node = place.server = None

    def wipe(self, name: str) -> None:
        """Give a node that does not run an empty disk."""
        self.places[NodeId(name)].disk = MemoryDisk()

    def isolate(self, name: str) -> None:
        """Cut a node off from all others."""
        host = self.places[NodeId(name)].host
        assert host is not None
        self.simulation.network.cut_off(host)

    def heal(self, name: str) -> None:
        """Let a node be reached again."""
        host = self.places[NodeId(name)].host
        assert host is not None
        self.simulation.network.join(host)

    def pause(self, name: str, seconds: float) -> None:
        """Stop a process for a while, as SIGSTOP does."""
        host = self.places[NodeId(name)].host
        assert host is not None
        host.pause(seconds)

    async def stop(self, name: str) -> None:
        """Stop a node as a broker that is asked to."""
        place = self.places[NodeId(name)]
        assert place.host is not None

        async def end() -> None:
            node, server = self.node(name), place.server
            assert server is not None
            await node.leave()
            await node.stop()
            await server.stop()
            place.disk.unlock()
            node.end_clean()

        await place.host.run(end())
        place.node = place.server = None
        place.disk = place.disk.reopen()

    # Looking.

    def node(self, name: str) -> Node:
        """Return the node of a process that runs."""
        node = self.places[NodeId(name)].node
        assert node is not None
        return node

    @property
    def running(self) -> list[Node]:
        """The nodes whose processes run."""
        return [place.node for place in self.places.values() if place.node is not None]

    def controllers(self) -> list[NodeId]:
        """The nodes that take themselves for the controller."""
        return [one.node for one in self.running if one.metadata.leading.is_own]

    async def until(self, is_true: Callable[[], bool], seconds: float = 30) -> float:
        """Wait for something to come true; return how long that took."""
        began = self.simulation.loop.time()
        while not is_true():
            now = self.simulation.loop.time()
            assert now - began < seconds, f"not within {seconds} s: {self.describe()}"
            await asyncio.sleep(0.01)
        return self.simulation.loop.time() - began

    def describe(self) -> str:
        """Say how all nodes stand."""
        return "; ".join(
            f"{place.name}: {place.node and place.node.metadata.image!r} {place.failure!r}"
            f" {place.node and place.node.metadata.leading}"
            for place in self.places.values()
        )

    def alive_on(self, node: Node) -> set[str]:
        """Return the nodes that are alive in the image of one."""
        nodes = node.metadata.image.nodes.values()
        return {str(one.id) for one in nodes if one.status is NodeStatus.ALIVE}

    async def all_alive(self, names: Iterable[str] | None = None, seconds: float = 30) -> float:
        """Wait until these nodes are live, and see themselves and no others as alive."""
        wanted = set(map(str, names or self.places))

        def is_so() -> bool:
            running = [one for one in self.running if str(one.node) in wanted]
            return len(running) == len(wanted) and all(
                self.alive_on(one) == wanted and one.is_live for one in running
            )

        return await self.until(is_so, seconds)

    async def propose(self, name: str, command: Command, *, request_id: str = "") -> Reply:
        """Propose something on a node."""
        host = self.places[NodeId(name)].host
        assert host is not None
        proposing = self.node(name).proposing
        return await host.run(proposing.propose(command, request_id=request_id))

    async def copy_replicas(self) -> None:
        """Bring replicas of live nodes into sync, as their leaders would when they have copied."""
        while True:
            for node in self.running:
                if node.is_live and node.metadata.node_epoch is not None:
                    await self._bring_into_sync(node)
            await asyncio.sleep(0.1)

    async def _bring_into_sync(self, node: Node) -> None:
        image, parts = node.metadata.image, []
        for topic in image.topics.values():
            for number, record in enumerate(topic.partitions):
                alive = [one for one in record.replicas if image.nodes[one].may_lead]
                if record.leader_id != node.node or set(alive) == set(record.isr_ids):
                    continue
                members = [InSyncMember(node=one, epoch=image.nodes[one].epoch) for one in alive]
                parts.append(
                    PartIsr(
                        topic_id=topic.id,
                        partition=number,
                        leader_epoch=record.leader_epoch,
                        partition_epoch=record.partition_epoch,
                        isr=members,
                    )
                )
        if parts:
            epoch = image.nodes[node.node].epoch
            with contextlib.suppress(GoQueueError):
                await self.propose(
                    node.node, AlterPartitions(node=node.node, epoch=epoch, parts=parts)
                )

    async def agree(self) -> bytes:
        """Wait until all running nodes have the same image; return it as bytes."""

        def digest(node: Node) -> bytes:
            return b"".join(map(msgspec.msgpack.encode, node.metadata.image.snapshot()))

        await self.until(lambda: len({digest(one) for one in self.running}) == 1)
        return digest(self.running[0])


Scenario = Callable[[ControlFleet], Awaitable[None]]


def run_control(
    scenario: Scenario,
    *,
    seed: int = 1,
    names: Sequence[str] = NAMES,
    timers: ClusterTimers | None = None,
) -> None:
    """Run a scenario on virtual time."""
    simulation = Simulation(seed)

    async def main(simulation: Simulation) -> None:
        await scenario(ControlFleet(simulation, names, timers))

    simulation.run(main)
    assert not simulation.failures, simulation.failures
