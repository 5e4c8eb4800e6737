"""What every implementation of ``Consensus`` promises; a test class for each one inherits this."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from goqueue.base.errors import ClosedError, DeadlineExceededError, GoQueueError, NotLeaderError
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.cluster.consensus import Consensus


class Fleet(Protocol):
    """Three nodes to begin with; whatever carries messages between them can be cut."""

    cut_off: set[PeerId]

    @property
    def running(self) -> list[PeerId]: ...
    def node(self, peer: PeerId) -> Consensus: ...
    def words(self, peer: PeerId) -> list[bytes]: ...
    async def start(self, peer: PeerId) -> None: ...
    async def stop(self, peer: PeerId) -> None: ...
    async def crash(self, peer: PeerId) -> None: ...
    async def leader(self) -> PeerId: ...
    async def propose(self, word: bytes) -> PeerId: ...
    async def agree(self) -> list[bytes]: ...


class ConsensusContract(ABC):
    """Scenarios on a fleet."""

    @abstractmethod
    def run(self, scenario: Callable[[Fleet], Awaitable[None]], *, seed: int = 1) -> None:
        """Run a scenario on a fleet of three nodes."""

    def test_proposals_are_applied_everywhere_in_one_order(self) -> None:
        """With the index of each, and the result of this node."""

        async def scenario(fleet: Fleet) -> None:
            leader = fleet.node(await fleet.leader())
            outcomes = await asyncio.gather(*(leader.propose(b"%d" % at) for at in range(50)))
            indexes = [outcome.index for outcome in outcomes]

            assert indexes == sorted(set(indexes))
            assert [outcome.result for outcome in outcomes] == list(range(1, 51))
            assert await fleet.agree() == [b"%d" % at for at in range(50)]

        self.run(scenario)

    def test_only_the_leader_takes_proposals(self) -> None:
        """Others say so at once, and nothing happens."""

        async def scenario(fleet: Fleet) -> None:
            leader = await fleet.leader()
            other = next(peer for peer in fleet.running if peer != leader)
            with pytest.raises(NotLeaderError):
                await fleet.node(other).propose(b"no")
            await fleet.propose(b"yes")

            assert await fleet.agree() == [b"yes"]
            assert fleet.node(other).leading.leader == leader
            assert not fleet.node(other).leading.is_own

        self.run(scenario)

    @pytest.mark.parametrize("seed", range(1, 6))
    def test_nothing_accepted_is_lost_when_the_leader_dies(self, seed: int) -> None:
        """The next leader has it all."""

        async def scenario(fleet: Fleet) -> None:
            for at in range(5):
                leader = await fleet.propose(b"%d" % at)
                await fleet.crash(leader)
                await fleet.leader()
                await fleet.start(leader)
            await fleet.propose(b"end")

            words = await fleet.agree()
            assert list(dict.fromkeys(words)) == [b"0", b"1", b"2", b"3", b"4", b"end"]

        self.run(scenario, seed=seed)

    def test_a_leader_that_is_cut_off_accepts_nothing(self) -> None:
        """Its proposals are in doubt, or certainly lost; the others go on."""

        async def scenario(fleet: Fleet) -> None:
            old = await fleet.leader()
            fleet.cut_off.add(old)
            with pytest.raises((DeadlineExceededError, NotLeaderError)):
                await fleet.node(old).propose(b"alone")
            with pytest.raises(GoQueueError):
                await fleet.node(old).barrier()
            await fleet.propose(b"together")
            fleet.cut_off.clear()
            await fleet.propose(b"all")

            words = await fleet.agree()
            assert words == [b"together", b"all"]

        self.run(scenario)

    def test_a_barrier_on_any_node_sees_what_was_accepted_before(self) -> None:
        """Also on one that has just started."""

        async def scenario(fleet: Fleet) -> None:
            leader = await fleet.propose(b"first")
            late = next(peer for peer in fleet.running if peer != leader)
            await fleet.stop(late)
            await fleet.propose(b"second")
            await fleet.start(late)
            await fleet.node(late).barrier()

            assert fleet.words(late) == [b"first", b"second"]

        self.run(scenario)

    def test_terms_of_leaders_only_grow(self) -> None:
        """So that what an old leader does can be told from what a later one does."""

        async def scenario(fleet: Fleet) -> None:
            terms = []
            for _ in range(3):
                leader = await fleet.leader()
                terms.append(fleet.node(leader).leading.term)
                await fleet.stop(leader)
                await fleet.leader()
                await fleet.start(leader)

            assert terms == sorted(set(terms))

        self.run(scenario)

    def test_leadership_is_handed_over(self) -> None:
        """To the voter that was named, with everything it needs."""

        async def scenario(fleet: Fleet) -> None:
            leader = await fleet.propose(b"before")
            target = next(peer for peer in fleet.running if peer != leader)
            await fleet.node(leader).transfer(target)

            assert await fleet.leader() == target
            assert await fleet.propose(b"after") == target
            assert await fleet.agree() == [b"before", b"after"]

        self.run(scenario)

    def test_members_come_and_go(self) -> None:
        """A new node learns everything, votes when it is promoted, and is removed again."""

        async def scenario(fleet: Fleet) -> None:
            await fleet.propose(b"old")
            leader = fleet.node(await fleet.leader())
            new = PeerId(4)
            await fleet.start(new)
            await leader.add_learner(new)
            assert list(leader.members.learners) == [new]
            await fleet.node(new).barrier()
            assert fleet.words(new) == [b"old"]
            await leader.promote(new)
            assert list(leader.members.voters) == [1, 2, 3, 4]
            await fleet.propose(b"new")
            assert await fleet.agree() == [b"old", b"new"]
            await leader.remove(new)
            assert list(leader.members.voters) == [1, 2, 3]

        self.run(scenario)

    def test_all_nodes_crash_together_and_nothing_is_lost(self) -> None:
        """What was accepted is on the disks of a majority."""

        async def scenario(fleet: Fleet) -> None:
            for at in range(10):
                await fleet.propose(b"%d" % at)
            peers = fleet.running
            for peer in peers:
                await fleet.crash(peer)
            for peer in peers:
                await fleet.start(peer)
            await fleet.leader()

            assert await fleet.agree() == [b"%d" % at for at in range(10)]

        self.run(scenario)

    def test_a_stop_ends_what_waits(self) -> None:
        """With an error, and what is asked for later, too."""

        async def scenario(fleet: Fleet) -> None:
            leader = await fleet.leader()
            node = fleet.node(leader)
            fleet.cut_off.update(peer for peer in fleet.running if peer != leader)
            waiting = asyncio.create_task(node.propose(b"never"))
            await asyncio.sleep(0.01)
            await fleet.stop(leader)
            with pytest.raises(GoQueueError):
                await waiting
            with pytest.raises(ClosedError):
                await node.propose(b"late")

        self.run(scenario)
