"""Some nodes of a quorum in one simulated process, each with a disk, and links that can be cut."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from goqueue.base.errors import DeadlineExceededError, NotLeaderError
from goqueue.core.raft.messages import Membership, PeerId
from goqueue.runtime.cluster.consensus import Leading
from goqueue.runtime.cluster.quorum import Quorum, QuorumConfig
from goqueue.storage.raft_store import RaftStore
from goqueue.testing.disk import MemoryDisk
from goqueue.testing.sim.simulation import Simulation


class Words:
    """A state machine: the list of all words."""

    def __init__(self) -> None:
        self.words: list[bytes] = []
        self.leaders: list[Leading] = []

    def apply(self, index: int, data: bytes) -> object:
        assert index > 0
        self.words.append(data)
        return len(self.words)

    def snapshot(self) -> bytes:
        return b" ".join(self.words)

    def restore(self, data: bytes) -> None:
        self.words = data.split(b" ") if data else []

    def leadership_changed(self, leading: Leading) -> None:
        self.leaders.append(leading)


@dataclass
class Place:
    """A node's disk, and its process while there is one."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    machine: Words = field(default_factory=Words)
    quorum: Quorum | None = None


class QuorumFleet:
    """The embedded quorum as the contract wants it."""

    def __init__(self, simulation: Simulation, voters: int, *, compact_bytes: int) -> None:
        self.simulation = simulation
        self.random = Random(simulation.chance.getrandbits(64))
        self.places: dict[PeerId, Place] = {}
        self.founders = tuple(PeerId(peer) for peer in range(1, voters + 1))
        self.cut_off: set[PeerId] = set()
        self.loss = 0.0
        self.sent_bytes = 0
        self._compact_bytes = compact_bytes

    def node(self, peer: PeerId) -> Quorum:
        """Return a node that runs."""
        quorum = self.places[peer].quorum
        assert quorum is not None
        return quorum

    def words(self, peer: PeerId) -> list[bytes]:
        """Return what a node has applied."""
        return self.places[peer].machine.words

    @property
    def running(self) -> list[PeerId]:
        """The nodes that have a process."""
        return [peer for peer, place in self.places.items() if place.quorum is not None]

    async def start_all(self) -> None:
        """Start the first nodes."""
        for peer in self.founders:
            await self.start(peer)

    async def start(self, peer: PeerId) -> None:
        """Start a node from its disk; one that is new joins with an empty one."""
        place = self.places.setdefault(peer, Place())
        store = RaftStore(place.disk, life=int(self.simulation.loop.time() * 1000))
        if store.restored is None and peer in self.founders:
            store.found(Membership(self.founders))
        elif store.restored is None:
            store.join()
        place.machine = Words()
        config = QuorumConfig(peer=peer, compact_bytes=self._compact_bytes)
        send = self._sender(peer)
        place.quorum = Quorum(config, store, place.machine, send)
        await place.quorum.start()

    async def stop(self, peer: PeerId) -> None:
        """Stop a node cleanly."""
        quorum, self.places[peer].quorum = self.node(peer), None
        await quorum.stop()

    async def crash(self, peer: PeerId) -> None:
        """Cut the power of a node: what is not durable is lost."""
        place = self.places[peer]
        quorum, place.quorum = self.node(peer), None
        place.disk = place.disk.crash(torn=self.random)
        await quorum.stop()

    def _sender(self, sender: PeerId) -> Callable[[PeerId, bytes], None]:
        def send(to: PeerId, raw: bytes) -> None:
            self.sent_bytes += len(raw)
            if self.random.random() >= self.loss:
                delay = self.random.uniform(0.000_1, 0.005)
                self.simulation.loop.call_later(delay, self._deliver, sender, to, raw)

        return send

    def _deliver(self, sender: PeerId, to: PeerId, raw: bytes) -> None:
        place = self.places.get(to)
        is_cut = sender in self.cut_off or to in self.cut_off
        if place is not None and place.quorum is not None and not is_cut:
            place.quorum.receive(raw)

    async def leader(self) -> PeerId:
        """Wait until a node leads that all nodes that can be reached agree upon."""
        while True:
            views = [self.node(peer).leading for peer in self.running if peer not in self.cut_off]
            leaders = {(view.leader, view.term) for view in views}
            if len(leaders) == 1 and views[0].leader in self.running:
                leader = views[0].leader
                assert leader is not None
                return leader
            await asyncio.sleep(0.01)

    async def propose(self, word: bytes) -> PeerId:
        """Propose a word until a leader has it applied; return the leader. It may come twice."""
        while True:
            leader = await self.leader()
            with contextlib.suppress(NotLeaderError, DeadlineExceededError):
                await self.node(leader).propose(word)
                return leader

    async def agree(self, peers: Iterable[PeerId] | None = None) -> list[bytes]:
        """Wait until nodes have applied the same; return it."""
        wanted = list(peers or self.running)
        for peer in wanted:
            await self.node(peer).barrier()
        words = [self.words(peer) for peer in wanted]
        assert all(one == words[0] for one in words)
        return words[0]


Scenario = Callable[[QuorumFleet], Awaitable[None]]


def run_fleet(
    scenario: Scenario, *, seed: int = 1, voters: int = 3, compact_bytes: int = 1 << 20
) -> None:
    """Run a scenario on virtual time."""
    simulation = Simulation(seed)

    async def main(simulation: Simulation) -> None:
        fleet = QuorumFleet(simulation, voters, compact_bytes=compact_bytes)
        await fleet.start_all()
        await scenario(fleet)
        for peer in fleet.running:
            assert fleet.node(peer).failure is None
            await fleet.stop(peer)

    simulation.run(main)
    assert not simulation.failures
