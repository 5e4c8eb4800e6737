"""Transactions whose coordinator and whose partitions are led by different nodes (P9)."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from goqueue.base.errors import (
    GoQueueError,
    InvalidTransactionStateError,
    NotCoordinatorError,
    ProducerFencedError,
    StaleEpochError,
    StaleTransactionError,
)
from goqueue.base.ids import NodeId
from goqueue.core.producers.id_blocks import owner_of
from goqueue.core.tx.producer import ABORT, COMMIT, Identity
from goqueue.runtime.broker import Broker
from goqueue.runtime.tx import orphans
from goqueue.testing.sim.simulation import Simulation
from goqueue.wire.calls import Call
from goqueue.wire.peer_calls import PeerOperation
from goqueue.wire.tx_peer_calls import MarkKind, TxMark, TxMarks
from tests.sim.tx_clients import Client, Reader, Teller, place
from tests.sim.tx_fleet import Fleet

NOTE, LATER = "batch 7", "batch 8"
TOPICS = {"accounts": 3, "in": 1}
A, B, C = (NodeId(name) for name in "abc")
Scenario = Callable[[Fleet], Awaitable[None]]


def run(scenario: Scenario, *, seed: int = 1, loss: float = 0.0) -> Fleet:
    """Run a scenario on three nodes, on virtual time."""
    simulation = Simulation(seed)
    fleets: list[Fleet] = []

    async def main(simulation: Simulation) -> None:
        fleet = Fleet(simulation)
        fleets.append(fleet)
        await fleet.start(TOPICS)
        fleet.loss = loss
        await scenario(fleet)

    simulation.run(main)
    assert not simulation.failures
    return fleets[0]


def away(fleet: Fleet, teller: Teller) -> list[int]:
    """Return the partitions of accounts that others lead than the coordinator."""
    home = fleet.leader(teller.where)
    return [one for one in range(3) if fleet.leader(place("accounts", one)) != home]


def led_by(fleet: Fleet, node: NodeId | None) -> int:
    """Return a partition of accounts that a node leads."""
    return next(one for one in range(3) if fleet.leader(place("accounts", one)) == node)


async def elsewhere(fleet: Fleet, teller: Teller) -> None:
    """Move the coordinator of a producer to another node."""
    home = fleet.leader(teller.where)
    fleet.elect(teller.where, next(name for name in fleet.nodes if name != home))
    await asyncio.sleep(0.2)


def open_anywhere(fleet: Fleet) -> list[str]:
    """Return which partitions have open transactions, and which ledgers hold for one."""
    found = [
        f"{one}: {list(fleet.led(one).queue.tx)}"
        for one in fleet.places
        if fleet.leader(one) is not None and list(fleet.led(one).queue.tx)
    ]
    for node in fleet.nodes.values():
        if node.broker is not None:
            found += [repr(one) for one in node.broker.consume.ledgers if one.ledger.holds]
    return found


def test_a_commit_shows_everything_and_an_abort_nothing() -> None:
    """Over partitions of three leaders; one round trip to the coordinator for each partition."""

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        await teller.init()
        await teller.begin()
        fleet.counts.clear()
        for partition in range(3):
            await teller.publish("accounts", partition, f"a{partition}")
            await teller.publish("accounts", partition, f"b{partition}")
        assert fleet.counts == {PeerOperation.TX_ADD: 2}, "the coordinator leads one of them"
        assert await reader.values("accounts", 0) == []
        await teller.end(COMMIT, token=NOTE)
        for partition in range(3):
            assert await reader.values("accounts", partition) == [f"a{partition}", f"b{partition}"]
        teller.go_on()
        for partition in range(3):
            await teller.publish("accounts", partition, "never")
        await teller.end(ABORT)
        await teller.begin()
        await teller.publish("accounts", 1, "last")
        await teller.end(COMMIT, token=LATER)

        assert await reader.values("accounts", 0) == ["a0", "b0"]
        assert await reader.values("accounts", 1) == ["a1", "b1", "last"]
        assert await reader.values("accounts", 2, committed=False) == ["a2", "b2", "never"]
        assert open_anywhere(fleet) == []
        await teller.init()
        assert teller.token == LATER

    run(scenario)


async def begin_for(who: Identity, broker: Broker) -> int:
    """Begin a transaction."""
    return await broker.transactions.begin(who)


def test_ids_say_which_coordinator_knows_a_producer() -> None:
    """A new life keeps the id; every other node refuses requests of producers it does not know."""

    async def scenario(fleet: Fleet) -> None:
        for name in ("t", "u", "v", "w"):
            teller = Teller(fleet, name)
            await teller.init()
            first = teller.who
            assert owner_of(first.producer_id) == teller.where.partition
            await teller.init()
            assert teller.who.producer_id == first.producer_id
            assert teller.who.epoch == first.epoch + 1
            other = next(one for one in fleet.nodes if one != fleet.leader(teller.where))
            begin = partial(begin_for, first)
            with pytest.raises(NotCoordinatorError):
                await fleet.call(other, begin)

    run(scenario)


def test_who_is_fenced_can_neither_publish_nor_commit() -> None:
    """Neither where it has published before, nor where it has not (trap A11)."""

    async def scenario(fleet: Fleet) -> None:
        zombie, heir, reader = Teller(fleet, "t"), Teller(fleet, "t"), Reader(fleet)
        await zombie.init()
        await zombie.begin()
        await zombie.publish("accounts", 0, "never")
        await heir.init()
        for partition in range(3):
            with pytest.raises(ProducerFencedError):
                await zombie.publish("accounts", partition, "zombie")
        with pytest.raises(ProducerFencedError):
            await zombie.end(COMMIT)
        await heir.begin()
        await heir.publish("accounts", 0, "mine")
        await heir.end(COMMIT)

        assert await reader.values("accounts", 0) == ["mine"]
        assert await reader.values("accounts", 1, committed=False) == []
        assert open_anywhere(fleet) == []

    run(scenario)


def test_what_comes_late_is_refused_and_what_comes_again_is_answered() -> None:
    """A transaction that is over takes nothing more; a repeat gets the first answer."""

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        await teller.init()
        await teller.begin()
        where = place("accounts", away(fleet, teller)[0])
        raw = teller.pack(where, "once")
        first = await teller.send(where, raw)
        await teller.end(COMMIT)
        again = await teller.send(where, raw)
        assert again.is_duplicate
        assert again.base_offset == first.base_offset
        with pytest.raises(InvalidTransactionStateError):
            await teller.publish("accounts", where.partition, "late")
        old, teller.who = teller.who, await teller.begin()
        new, teller.who = teller.who, old
        with pytest.raises(StaleTransactionError):
            await teller.publish("accounts", where.partition, "late")
        teller.who = new
        await teller.end(ABORT)

        assert await reader.values("accounts", where.partition, committed=False) == ["once"]

    run(scenario)


def test_the_end_of_a_transaction_overtakes_an_admission() -> None:
    """Messages whose admission is answered after the end are refused, and leave nothing open."""

    async def scenario(fleet: Fleet) -> None:
        teller = Teller(fleet, "t")
        await teller.init()
        await teller.begin()
        number = away(fleet, teller)[0]
        where = place("accounts", number)
        leader = fleet.leader(where)
        assert leader is not None
        cluster = fleet.nodes[leader].up.transactions.cluster
        assert cluster is not None
        late: asyncio.Event = asyncio.Event()
        ask = cluster.link.ask

        async def slow(*args: Any) -> Any:
            answer: Any = await ask(*args)
            await late.wait()
            return answer

        cluster.link.ask = slow  # type: ignore[method-assign, assignment]
        sending = asyncio.create_task(teller.publish("accounts", number, "late"))
        await asyncio.sleep(0.5)
        await teller.end(ABORT)
        late.set()
        with pytest.raises(InvalidTransactionStateError):
            await sending

        assert fleet.led(where).log.end_offset == 0
        assert open_anywhere(fleet) == []

    run(scenario)


def test_an_admission_is_over_when_the_partition_was_led_elsewhere() -> None:
    """The end was told to another leader; the one before it, leading again, takes nothing more."""

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        await teller.init()
        await teller.begin()
        where = place("accounts", away(fleet, teller)[0])
        await teller.publish("accounts", where.partition, "never")
        first = fleet.leader(where)
        fleet.elect(where, next(one for one in fleet.nodes if one != first))
        await asyncio.sleep(0.2)
        await teller.end(ABORT)
        await asyncio.sleep(0.2)
        fleet.elect(where, first)
        await asyncio.sleep(0.2)
        with pytest.raises(InvalidTransactionStateError):
            await teller.publish("accounts", where.partition, "late")

        assert await reader.values("accounts", where.partition, committed=False) == ["never"]
        assert open_anywhere(fleet) == []

    run(scenario)


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_coordinator_dies_after_deciding_before_it_told_anybody(outcome: str, how: str) -> None:
    """Another one finds the decision and tells everybody; the client gets the same answer."""

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        await teller.init()
        await teller.begin()
        for partition in range(3):
            await teller.publish("accounts", partition, "x")
        home = fleet.leader(teller.where)
        assert home is not None
        decided: asyncio.Event = asyncio.Event()

        async def stop(
            sender: NodeId, _to: NodeId, operation: PeerOperation, _header: Call
        ) -> None:
            if operation is PeerOperation.TX_MARK and sender == home:
                decided.set()
                await asyncio.sleep(1_000)

        fleet.before_request = stop
        ending = asyncio.create_task(teller.end(outcome, token=NOTE))
        await decided.wait()
        await fleet.kill(home, power=how == "power")
        await ending
        expected = ["x"] if outcome == COMMIT else []
        for partition in range(3):
            assert await reader.values("accounts", partition) == expected
        await fleet.start_node(home)
        await asyncio.sleep(2)
        assert open_anywhere(fleet) == []
        await teller.init()
        assert teller.token == (NOTE if outcome == COMMIT else "")

    run(scenario)


def test_a_partition_changes_its_leader_between_add_and_mark() -> None:
    """The leader of that time is told, whoever was told of the messages; also when it dies."""

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        await teller.init()
        home = fleet.leader(teller.where)
        for turn in range(4):
            await teller.begin()
            for partition in range(3):
                await teller.publish("accounts", partition, f"x{turn}")
            where = place("accounts", away(fleet, teller)[0])
            old = fleet.leader(where)
            fleet.elect(where, next(one for one in fleet.nodes if one not in (old, home)))
            if turn % 2:
                await asyncio.sleep(0.2)
                # The new leader asks the coordinator for itself.
                await teller.publish("accounts", where.partition, f"y{turn}")
            await teller.end(COMMIT if turn < 3 else ABORT)
        for partition in range(3):
            found = await reader.values("accounts", partition)
            assert [one for one in found if one[0] == "x"] == ["x0", "x1", "x2"]
        await teller.begin()
        await teller.publish("accounts", 0, "a")
        await teller.publish("accounts", 1, "b")
        where = place("accounts", 0 if fleet.leader(place("accounts", 0)) != home else 1)
        leader = fleet.leader(where)
        assert leader is not None
        killing = asyncio.create_task(fleet.kill(leader, power=True))
        await teller.end(COMMIT)
        await killing

        assert (await reader.values("accounts", 0))[-1] == "a"
        assert (await reader.values("accounts", 1))[-1] == "b"
        assert open_anywhere(fleet) == []

    run(scenario)


def test_an_open_transaction_goes_on_with_another_coordinator() -> None:
    """Places, offsets and the token are where its partition is led."""

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        await teller.init()
        await teller.begin()
        await teller.publish("accounts", 0, "a")
        await elsewhere(fleet, teller)
        await teller.publish("accounts", 1, "b")
        await elsewhere(fleet, teller)
        await teller.end(COMMIT)

        assert await reader.values("accounts", 0) == ["a"]
        assert await reader.values("accounts", 1) == ["b"]

    run(scenario)


def test_a_transaction_times_out_with_another_coordinator() -> None:
    """Its time begins anew, and ends; its producer is told so."""

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t", timeout_ms=5_000), Reader(fleet)
        await teller.init()
        await teller.begin()
        for partition in range(3):
            await teller.publish("accounts", partition, "x")
        await elsewhere(fleet, teller)
        await asyncio.sleep(8)
        with pytest.raises(InvalidTransactionStateError):
            await teller.end(COMMIT)
        with pytest.raises(InvalidTransactionStateError):
            await teller.publish("accounts", away(fleet, teller)[0], "late")

        assert await reader.values("accounts", 0) == []
        assert open_anywhere(fleet) == []

    run(scenario)


def test_marks_of_an_earlier_coordinator_are_refused() -> None:
    """Whoever was replaced says nothing any more, also to a leader that heard of it by a mark."""

    async def scenario(fleet: Fleet) -> None:
        teller = Teller(fleet, "t")
        await teller.init()
        await teller.begin()
        number = led_by(
            fleet, next(one for one in fleet.nodes if one != fleet.leader(teller.where))
        )
        await teller.publish("accounts", number, "x")
        where = place("accounts", number)
        epoch = fleet.places[teller.where].epoch
        await elsewhere(fleet, teller)
        call = TxMarks(
            teller.where.partition,
            epoch,
            MarkKind.COMMIT,
            teller.who.number or 0,
            "t",
            teller.who.producer_id,
            teller.who.epoch,
            [TxMark("accounts", number)],
        )

        async def mark(broker: Broker) -> None:
            assert broker.transactions.cluster is not None
            await broker.transactions.cluster.participant.mark(call)

        with pytest.raises(StaleEpochError):
            await Client(fleet).once(where, mark)
        assert list(fleet.led(where).queue.tx) == [teller.who.number]
        await teller.end(ABORT)
        assert open_anywhere(fleet) == []

    run(scenario)


@pytest.mark.parametrize("fate", [COMMIT, ABORT, "unknown"])
def test_what_its_coordinator_does_not_know_is_ended_after_a_while(
    fate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that lost the end of a transaction asks for it; what nobody knows is aborted."""
    monkeypatch.setattr(orphans, "LOOK_SECONDS", 1.0)
    monkeypatch.setattr(orphans, "OPEN_MS_MIN", 2_000)

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        await teller.init()
        await teller.begin()
        where = place("accounts", away(fleet, teller)[0])
        await teller.publish("accounts", where.partition, "x")
        await asyncio.sleep(5)
        assert list(fleet.led(where).queue.tx) == [teller.who.number], "it is open, and stays so"
        raw = teller.pack(where, "lost")
        home = fleet.leader(teller.where)
        assert home is not None
        producer = fleet.nodes[home].up.transactions.get("t")
        producer.partitions.clear()
        if fate == "unknown":
            await Teller(fleet, "t").init()
        else:
            await teller.end(fate)
        assert list(fleet.led(where).queue.tx), "nobody told it"
        await asyncio.sleep(10)

        assert open_anywhere(fleet) == []
        assert await reader.values("accounts", where.partition) == (["x"] if fate == COMMIT else [])
        with pytest.raises((InvalidTransactionStateError, ProducerFencedError)):
            await teller.send(where, raw)

    run(scenario)


def test_a_node_that_is_cut_off_changes_nothing() -> None:
    """A coordinator and a leader by themselves: what they do is not acknowledged, or not done."""

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        await teller.init()
        await teller.begin()
        for partition in range(3):
            await teller.publish("accounts", partition, "x")
        home = fleet.leader(teller.where)
        assert home is not None
        own = led_by(fleet, home)
        old = fleet.nodes[home].up
        fleet.cut_off.add(home)

        async def end(broker: Broker) -> None:
            await broker.transactions.end(teller.who, COMMIT)

        host = fleet.nodes[home].host
        assert host is not None
        alone = host.begin(end(old))
        await fleet.cut(home)
        await asyncio.sleep(1)
        assert not alone.done() or isinstance(alone.exception(), GoQueueError)
        await teller.end(ABORT)
        fleet.heal(home)
        await asyncio.sleep(2)

        assert alone.done()
        assert isinstance(alone.exception(), GoQueueError)
        assert await reader.values("accounts", own) == []
        assert open_anywhere(fleet) == []

    run(scenario)
