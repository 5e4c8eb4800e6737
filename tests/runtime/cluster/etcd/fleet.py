"""Nodes of a cluster on a simulated etcd with a member beside each of the first three nodes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from goqueue.base.errors import DeadlineExceededError, NotLeaderError
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.cluster.consensus import Leading
from goqueue.runtime.cluster.etcd.consensus import EtcdConsensus, EtcdConsensusConfig
from goqueue.testing.sim.etcd import SimEtcd, SimEtcdLink
from goqueue.testing.sim.simulation import Simulation


class IndexedWords:
    """A state machine: all words with their indexes, and who wrote what when."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.leaders: list[Leading] = []
        self.restored = 0

    @property
    def words(self) -> list[bytes]:
        return [word for _, word in self.entries]

    def apply(self, index: int, data: bytes) -> object:
        assert index > (self.entries[-1][0] if self.entries else 0), "in order, and each once"
        self.entries.append((index, data))
        return len(self.entries)

    def snapshot(self) -> bytes:
        return b" ".join(b"%d:%b" % entry for entry in self.entries)

    def restore(self, data: bytes) -> None:
        before = self.entries
        pairs = (one.split(b":", 1) for one in data.split(b" ") if one)
        self.entries = [(int(index), word) for index, word in pairs]
        self.restored += 1
        assert self.entries[: len(before)] == before, "a snapshot has what was applied"

    def leadership_changed(self, leading: Leading) -> None:
        assert not self.leaders or leading.term >= self.leaders[-1].term
        self.leaders.append(leading)


@dataclass
class EtcdPlace:
    """The process of a node while there is one."""

    machine: IndexedWords = field(default_factory=IndexedWords)
    link: SimEtcdLink | None = None
    consensus: EtcdConsensus | None = None


class EtcdFleet:
    """Consensus on etcd as the contract wants it: who is cut off takes its member of etcd along."""

    def __init__(self, simulation: Simulation, voters: int, *, compact_batches: int) -> None:
        self.simulation = simulation
        self.random = Random(simulation.chance.getrandbits(64))
        self.places: dict[PeerId, EtcdPlace] = {}
        self.founders = tuple(PeerId(peer) for peer in range(1, voters + 1))
        self.cut_off: set[PeerId] = set()
        self.etcd = SimEtcd(simulation.loop, Random(simulation.chance.getrandbits(64)))
        self.etcd.is_up = self._has_majority
        self.etcd.can_reach = lambda name: PeerId(int(name)) not in self.cut_off
        self._compact_batches = compact_batches

    def _has_majority(self) -> bool:
        """There is a member of etcd beside each founder."""
        return 2 * len(self.cut_off.intersection(self.founders)) < len(self.founders)

    def node(self, peer: PeerId) -> EtcdConsensus:
        """Return a node that runs."""
        consensus = self.places[peer].consensus
        assert consensus is not None
        return consensus

    def words(self, peer: PeerId) -> list[bytes]:
        """Return what a node has applied."""
        return self.places[peer].machine.words

    @property
    def running(self) -> list[PeerId]:
        """The nodes that have a process."""
        return [peer for peer, place in self.places.items() if place.consensus is not None]

    async def start_all(self) -> None:
        """Start the first nodes."""
        for peer in self.founders:
            await self.start(peer)

    async def start(self, peer: PeerId) -> None:
        """Start a node; it has nothing but what is in etcd."""
        place = self.places.setdefault(peer, EtcdPlace())
        place.machine = IndexedWords()
        founders = self.founders if peer in self.founders else ()
        config = EtcdConsensusConfig(
            peer=peer, founders=founders, compact_batches=self._compact_batches
        )
        place.link = self.etcd.link(str(peer))
        place.consensus = EtcdConsensus(config, place.link, place.machine)
        await place.consensus.start()

    async def stop(self, peer: PeerId) -> None:
        """Stop a node cleanly."""
        consensus, self.places[peer].consensus = self.node(peer), None
        await consensus.stop()

    async def crash(self, peer: PeerId) -> None:
        """Kill a node: etcd does not hear of it, and what it sent may still arrive."""
        link = self.places[peer].link
        assert link is not None
        link.is_dead = True
        await self.stop(peer)

    async def advance(self, seconds: float) -> None:
        """Let virtual time go on."""
        await asyncio.sleep(seconds)

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
            await asyncio.sleep(0.01)

    async def agree(self, peers: Iterable[PeerId] | None = None) -> list[bytes]:
        """Wait until nodes have applied the same; return it."""
        wanted = list(peers or self.running)
        for peer in wanted:
            await self.node(peer).barrier()
        entries = [self.places[peer].machine.entries for peer in wanted]
        assert all(one == entries[0] for one in entries)
        return [word for _, word in entries[0]]


EtcdScenario = Callable[[EtcdFleet], Awaitable[None]]


def run_etcd_fleet(
    scenario: EtcdScenario, *, seed: int = 1, voters: int = 3, compact_batches: int = 1_000
) -> None:
    """Run a scenario on virtual time."""
    simulation = Simulation(seed)

    async def main(simulation: Simulation) -> None:
        fleet = EtcdFleet(simulation, voters, compact_batches=compact_batches)
        await fleet.start_all()
        await scenario(fleet)
        for peer in fleet.running:
            assert fleet.node(peer).failure is None
            await fleet.stop(peer)

    simulation.run(main)
    assert not simulation.failures
