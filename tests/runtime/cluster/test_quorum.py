"""The embedded quorum with real files' rules, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from goqueue.base.cluster_limits import RAFT_ENTRY_BYTES_MAX
from goqueue.base.errors import GoQueueError, ProtocolError, StorageFailedError, TooLargeError
from goqueue.base.ids import Position
from goqueue.core.raft.messages import PeerId
from goqueue.runtime.cluster.consensus import Leading
from goqueue.storage.raft_store import JOURNAL_PATH, SNAPSHOT_PATH
from tests.runtime.cluster.consensus_contract import ConsensusContract
from tests.runtime.cluster.fleet import QuorumFleet, run_fleet


class TestQuorum(ConsensusContract):
    """The embedded implementation."""

    def run(self, scenario: Callable[[Any], Awaitable[None]], *, seed: int = 1) -> None:
        run_fleet(scenario, seed=seed)


def test_a_single_node_is_its_own_majority() -> None:
    """Over restarts, too."""

    async def scenario(fleet: QuorumFleet) -> None:
        for at in range(3):
            await fleet.propose(b"%d" % at)
            await fleet.crash(PeerId(1))
            await fleet.start(PeerId(1))
        await fleet.leader()

        assert await fleet.agree() == [b"0", b"1", b"2"]

    run_fleet(scenario, voters=1)


def test_a_journal_that_has_grown_is_replaced_by_a_snapshot() -> None:
    """A node that was away gets the snapshot, and a restart begins with it."""

    async def scenario(fleet: QuorumFleet) -> None:
        leader = await fleet.leader()
        away = next(peer for peer in fleet.running if peer != leader)
        await fleet.stop(away)
        for at in range(1_500):
            await fleet.node(leader).propose(b"%d" % at)
        assert fleet.places[leader].disk.exists(SNAPSHOT_PATH)
        await fleet.start(away)
        words = await fleet.agree()
        assert words == [b"%d" % at for at in range(1_500)]
        for peer in fleet.running:
            await fleet.crash(peer)
            await fleet.start(peer)
        await fleet.leader()

        assert await fleet.agree() == words

    run_fleet(scenario, compact_bytes=4_000)


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_node_with_a_damaged_journal_is_mended(seed: int) -> None:
    """Hard case 7: it votes again only after the others took its vote and it has everything."""

    async def scenario(fleet: QuorumFleet) -> None:
        leader = await fleet.leader()
        for at in range(20):
            await fleet.propose(b"%d" % at)
        hurt = fleet.random.choice(fleet.running)
        await fleet.stop(hurt)
        file = fleet.places[hurt].disk.open(JOURNAL_PATH)
        raw = file.read(Position(0), file.size())
        at = fleet.random.randrange(len(raw))
        file.truncate(0)
        file.append([raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :]])
        file.sync()
        await fleet.leader()
        await fleet.start(hurt)
        await asyncio.sleep(10)
        await fleet.propose(b"end")
        assert not fleet.node(hurt).is_quarantined

        assert list(fleet.node(leader).members.voters) == [1, 2, 3]
        words = await fleet.agree()
        assert list(dict.fromkeys(words)) == [*(b"%d" % at for at in range(20)), b"end"]

    run_fleet(scenario, seed=seed)


def test_a_wiped_voter_has_no_vote_until_it_was_taken_from_it() -> None:
    """Hard case 8: with the other two there is a majority; with two wiped there is none."""

    async def scenario(fleet: QuorumFleet) -> None:
        await fleet.propose(b"kept")
        leader = await fleet.leader()
        others = [peer for peer in fleet.running if peer != leader]
        for peer in others:
            await fleet.stop(peer)
            fleet.places[peer].disk.remove(JOURNAL_PATH)
            fleet.places[peer].disk.open(SNAPSHOT_PATH, create=True).close()
            await fleet.start(peer)
        with pytest.raises(GoQueueError):
            await fleet.node(leader).propose(b"alone")
        await asyncio.sleep(20)

        assert all(fleet.node(peer).leading.leader is None for peer in fleet.running)
        assert fleet.words(leader) == [b"kept"]

    run_fleet(scenario)


def test_a_disk_that_fails_ends_the_part_of_its_node() -> None:
    """What it cannot write it does not confirm; the others go on."""

    async def scenario(fleet: QuorumFleet) -> None:
        leader = await fleet.propose(b"before")
        fleet.places[leader].disk.fail_sync(JOURNAL_PATH)
        with pytest.raises(GoQueueError):
            await fleet.node(leader).propose(b"doubt")
        assert isinstance(fleet.node(leader).failure, StorageFailedError)
        with pytest.raises(StorageFailedError):
            await fleet.node(leader).propose(b"late")
        assert fleet.node(leader).failed.is_set()
        assert fleet.node(leader).leading == Leading(
            leader=None, term=fleet.node(leader).leading.term, is_own=False
        )
        await fleet.crash(leader)
        await fleet.propose(b"after")
        await fleet.start(leader)

        words = await fleet.agree()
        assert [word for word in words if word != b"doubt"] == [b"before", b"after"]

    run_fleet(scenario)


def test_a_full_disk_is_waited_for() -> None:
    """The node goes on when there is room again."""

    async def scenario(fleet: QuorumFleet) -> None:
        leader = await fleet.leader()
        follower = next(peer for peer in fleet.running if peer != leader)
        fleet.places[follower].disk.fill_up(path_glob="cluster/*")
        await fleet.propose(b"more")
        fleet.places[follower].disk.make_room()
        await fleet.node(follower).barrier()

        assert fleet.words(follower) == [b"more"]

    run_fleet(scenario)


@pytest.mark.parametrize("seed", range(1, 11))
def test_nothing_is_lost_over_a_bad_network_and_crashes(seed: int) -> None:
    """Each word that was accepted is there once for each time it was."""

    async def scenario(fleet: QuorumFleet) -> None:
        accepted: list[bytes] = []
        for at in range(30):
            fleet.loss = fleet.random.choice((0.0, 0.0, 0.1, 0.3))
            fleet.cut_off = {fleet.random.choice(fleet.founders)} if at % 3 == 0 else set()
            leader = await fleet.propose(b"%d" % at)
            accepted.append(b"%d" % at)
            if at % 7 == 6:
                await fleet.crash(leader)
                fleet.cut_off = set()
                await fleet.leader()
                await fleet.start(leader)
        fleet.loss, fleet.cut_off = 0.0, set()
        await fleet.leader()

        words = await fleet.agree()
        assert list(dict.fromkeys(words)) == accepted

    run_fleet(scenario, seed=seed)


def test_what_makes_no_sense_is_refused() -> None:
    """Messages for others, bytes that are no message, proposals that are too large."""

    async def scenario(fleet: QuorumFleet) -> None:
        leader = await fleet.leader()
        with pytest.raises(ProtocolError):
            fleet.node(leader).receive(b"nonsense")
        with pytest.raises(ProtocolError):
            fleet.node(leader).receive(b"\x94\x01\x63\x01\x91\x08")
        with pytest.raises(TooLargeError):
            await fleet.node(leader).propose(bytes(RAFT_ENTRY_BYTES_MAX + 1))

    run_fleet(scenario)
