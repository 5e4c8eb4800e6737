"""Consensus on a simulated etcd, with its faults, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from goqueue.base.cluster_limits import ETCD_CHUNK_BYTES, RAFT_ENTRY_BYTES_MAX
from goqueue.base.errors import (
    DataLossError,
    DeadlineExceededError,
    GoQueueError,
    InvalidRequestError,
    NotLeaderError,
    OverloadedError,
    TooLargeError,
)
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.cluster.etcd.api import DeleteKeys, ReadKeys
from goqueue.runtime.cluster.etcd.records import EtcdKeys
from goqueue.testing.sim.etcd import EtcdFaults
from tests.runtime.cluster.consensus_contract import ConsensusContract
from tests.runtime.cluster.etcd.fleet import EtcdFleet, run_etcd_fleet

KEYS = EtcdKeys("goqueue")


class TestEtcdConsensus(ConsensusContract):
    """The implementation on etcd."""

    def run(self, scenario: Callable[[Any], Awaitable[None]], *, seed: int = 1) -> None:
        run_etcd_fleet(scenario, seed=seed)


def batches(fleet: EtcdFleet) -> int:
    """Return how many keys of the log are in etcd."""
    return len(fleet.etcd.model.range(ReadKeys(KEYS.log(0), KEYS.log_end)).items)


def end_lease(fleet: EtcdFleet) -> None:
    """Let etcd end the lease by which a node leads."""
    lease = fleet.etcd.model.range(ReadKeys(KEYS.leader)).items[0].lease
    fleet.etcd.do(lambda: fleet.etcd.model.revoke(lease))


async def next_leader(fleet: EtcdFleet, term: int) -> PeerId:
    """Wait for a leader of a later term."""
    while True:
        leader = await fleet.leader()
        if fleet.node(leader).leading.term > term:
            return leader
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_write_without_an_answer_counts_once(seed: int) -> None:
    """It is sent again until an answer comes, whether it was done or not."""

    async def scenario(fleet: EtcdFleet) -> None:
        node = fleet.node(await fleet.leader())
        chance = fleet.random.choice
        fleet.etcd.faults = EtcdFaults(unanswered=chance((1.0, 0.0)), lost=chance((1.0, 0.0)))
        waiting = asyncio.create_task(node.propose(b"once"))
        await fleet.advance(0.8)
        fleet.etcd.faults = EtcdFaults()
        outcome = await waiting

        assert await fleet.agree() == [b"once"]
        assert fleet.places[await fleet.leader()].machine.entries == [(outcome.index, b"once")]

    run_etcd_fleet(scenario, seed=seed)


def test_a_write_that_arrives_after_the_leader_was_deposed_is_not_done() -> None:
    """Its caller learns so as soon as the next leader is known."""

    async def scenario(fleet: EtcdFleet) -> None:
        old = await fleet.leader()
        fleet.etcd.faults = EtcdFaults(late=1.0)
        waiting = asyncio.create_task(fleet.node(old).propose(b"late"))
        await asyncio.sleep(0.01)
        fleet.etcd.faults = EtcdFaults()
        end_lease(fleet)
        with pytest.raises(NotLeaderError):
            await waiting
        await fleet.propose(b"next")
        await asyncio.sleep(10)

        assert await fleet.agree() == [b"next"]

    run_etcd_fleet(scenario)


def test_a_lease_that_is_lost_ends_the_lead() -> None:
    """The next leader has a greater term, if it is the same node, too."""

    async def scenario(fleet: EtcdFleet) -> None:
        terms = []
        for _ in range(5):
            leader = await fleet.leader()
            terms.append(fleet.node(leader).leading.term)
            end_lease(fleet)
            await next_leader(fleet, terms[-1])
            await fleet.propose(b"%d" % len(terms))

        assert terms == sorted(set(terms))
        assert await fleet.agree() == [b"1", b"2", b"3", b"4", b"5"]

    run_etcd_fleet(scenario)


def test_a_node_without_a_lease_knows_of_no_leader() -> None:
    """What it last heard of etcd may be long over; it takes no proposals."""

    async def scenario(fleet: EtcdFleet) -> None:
        leader = await fleet.leader()
        fleet.cut_off = set(fleet.founders)
        await fleet.advance(3)

        assert all(fleet.node(peer).leading.leader is None for peer in fleet.running)
        with pytest.raises(NotLeaderError):
            await fleet.node(leader).propose(b"no")
        fleet.cut_off = set()
        await fleet.propose(b"yes")
        assert await fleet.agree() == [b"yes"]
        known = fleet.places[leader].machine.leaders
        assert [one.leader for one in known[:2]] == [leader, None]

    run_etcd_fleet(scenario)


def test_a_log_that_has_grown_is_replaced_by_a_snapshot() -> None:
    """In pieces, whatever its size; a node that starts begins with it."""

    async def scenario(fleet: EtcdFleet) -> None:
        leader = fleet.node(await fleet.leader())
        words = [b"%d" % at + b"x" * 30_000 for at in range(60)]
        for word in words:
            await leader.propose(word)
        await fleet.advance(1)
        (record,) = fleet.etcd.model.range(ReadKeys(KEYS.snapshot)).items
        chunks = fleet.etcd.model.range(ReadKeys(*KEYS.chunks_before(10**9))).items
        assert b'"index":60' in record.value
        assert [len(item.value) for item in chunks[:-1]] == [ETCD_CHUNK_BYTES] * 3
        assert batches(fleet) == 0
        await leader.propose(b"more")
        for peer in fleet.running:
            await fleet.crash(peer)
            await fleet.start(peer)

        assert await fleet.agree() == [*words, b"more"]

    run_etcd_fleet(scenario, compact_batches=20)


def test_a_watch_behind_a_compaction_reads_snapshot_and_log() -> None:
    """Whether it fell behind the snapshot or not."""

    async def scenario(fleet: EtcdFleet) -> None:
        leader = await fleet.leader()
        late = next(peer for peer in fleet.running if peer != leader)
        words = []
        for at in range(6):
            fleet.cut_off = {late}
            for one in range(9):
                words.append(b"%d.%d" % (at, one))
                await fleet.node(leader).propose(words[-1])
            fleet.etcd.model.compact(fleet.etcd.model.revision)
            fleet.cut_off = set()
            await fleet.advance(5)

            assert fleet.words(late) == words
        assert fleet.places[late].machine.restored > 1

    run_etcd_fleet(scenario, compact_batches=20)


def test_a_watch_that_shows_nothing_is_replaced() -> None:
    """Within some seconds, without anybody asking."""

    async def scenario(fleet: EtcdFleet) -> None:
        leader = await fleet.leader()
        other = next(peer for peer in fleet.running if peer != leader)
        fleet.etcd.faults = EtcdFaults(watch_stalled=1.0)
        await fleet.node(leader).propose(b"unseen")
        await asyncio.sleep(0.1)
        assert fleet.words(other) == []
        fleet.etcd.faults = EtcdFaults()
        await fleet.advance(7)

        assert fleet.words(other) == [b"unseen"]

    run_etcd_fleet(scenario)


def test_only_voters_lead() -> None:
    """A leader that loses its vote lets another node lead."""

    async def scenario(fleet: EtcdFleet) -> None:
        old = await fleet.leader()
        term = fleet.node(old).leading.term
        await fleet.node(old).add_learner(old)
        first = await next_leader(fleet, term)
        second = next(peer for peer in fleet.running if peer not in (old, first))
        with pytest.raises(InvalidRequestError):
            await fleet.node(first).transfer(old)
        await fleet.node(first).remove(second)
        with pytest.raises(InvalidRequestError):
            await fleet.node(first).remove(first)
        await fleet.stop(first)
        await asyncio.sleep(10)

        assert all(fleet.node(peer).leading.leader is None for peer in (old, second))
        await fleet.start(first)
        assert await fleet.propose(b"back") == first

    run_etcd_fleet(scenario)


def test_the_lead_goes_to_no_node_that_is_down() -> None:
    """The leader leads on."""

    async def scenario(fleet: EtcdFleet) -> None:
        leader = await fleet.leader()
        down = next(peer for peer in fleet.running if peer != leader)
        await fleet.stop(down)
        with pytest.raises(DeadlineExceededError):
            await fleet.node(leader).transfer(down)

        assert await fleet.propose(b"still") == leader

    run_etcd_fleet(scenario)


def test_one_change_of_the_members_at_a_time() -> None:
    """As with the embedded quorum."""

    async def scenario(fleet: EtcdFleet) -> None:
        node = fleet.node(await fleet.leader())
        first = asyncio.create_task(node.add_learner(PeerId(4)))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await node.add_learner(PeerId(5))
        await first

        assert list(node.members.learners) == [4]

    run_etcd_fleet(scenario)


def test_what_etcd_refuses_is_refused() -> None:
    """With its reason; what is proposed later is another matter."""

    async def scenario(fleet: EtcdFleet) -> None:
        leader = await fleet.leader()
        fleet.etcd.faults = EtcdFaults(is_full=True)
        with pytest.raises(OverloadedError, match="space exceeded"):
            await fleet.node(leader).propose(b"no")
        fleet.etcd.faults = EtcdFaults()
        with pytest.raises(TooLargeError):
            await fleet.node(leader).propose(bytes(RAFT_ENTRY_BYTES_MAX + 1))
        await fleet.node(leader).propose(bytes(RAFT_ENTRY_BYTES_MAX))

        assert len((await fleet.agree())[0]) == RAFT_ENTRY_BYTES_MAX

    run_etcd_fleet(scenario)


def test_an_etcd_that_has_less_than_it_had_is_left() -> None:
    """A node does not go on with another history than it has applied."""

    async def scenario(fleet: EtcdFleet) -> None:
        await fleet.propose(b"kept")
        await fleet.agree()
        model = fleet.etcd.model
        fleet.cut_off = set(fleet.founders)
        fleet.etcd.do(lambda: model.txn((), [DeleteKeys(b"goqueue/", b"goqueue0")]))
        model.compact(model.revision)
        fleet.cut_off = set()
        await fleet.advance(5)
        for peer in fleet.running:
            assert isinstance(fleet.node(peer).failure, DataLossError)
            with pytest.raises(DataLossError):
                await fleet.node(peer).barrier()
            assert not fleet.node(peer).leading.is_own
            assert fleet.words(peer) == [b"kept"]
            await fleet.stop(peer)

    run_etcd_fleet(scenario)


def test_a_node_that_may_not_found_a_cluster_waits_for_one() -> None:
    """So that a wrong prefix begins no cluster of its own."""

    async def scenario(fleet: EtcdFleet) -> None:
        for peer in fleet.running:
            await fleet.stop(peer)
        fleet.etcd.do(lambda: fleet.etcd.model.txn((), [DeleteKeys(b"goqueue/", b"goqueue0")]))
        await fleet.start(PeerId(4))
        with pytest.raises(GoQueueError):
            await fleet.node(PeerId(4)).barrier()
        await fleet.start(PeerId(1))
        await fleet.propose(b"founded")
        await fleet.node(PeerId(4)).barrier()

        assert fleet.words(PeerId(4)) == [b"founded"]

    run_etcd_fleet(scenario)


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_handover_leaves_no_gap(seed: int) -> None:
    """There is a leader at all times, and the handover takes some round trips."""

    async def scenario(fleet: EtcdFleet) -> None:
        old = await fleet.leader()
        new = next(peer for peer in fleet.running if peer != old)
        begun = fleet.simulation.loop.time()
        await fleet.node(old).transfer(new)

        assert fleet.simulation.loop.time() - begun < 0.1
        await fleet.agree()
        assert await fleet.leader() == new
        for peer in fleet.running:
            known = [one.leader for one in fleet.places[peer].machine.leaders]
            assert known == [old, new]

    run_etcd_fleet(scenario, seed=seed)
