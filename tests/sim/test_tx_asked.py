"""What nodes of a cluster ask each other about transactions beside their places and ends."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from goqueue.base.errors import ProducerFencedError, UnknownProducerError
from goqueue.base.ids import TopicPartition
from goqueue.core.tx.producer import COMMIT, Identity
from goqueue.runtime.broker import Broker
from goqueue.runtime.state_log import STATE_TOPIC
from goqueue.runtime.tx.producer_sessions import Life
from goqueue.wire.peer_calls import PeerOperation
from tests.sim.test_tx_cluster import elsewhere, open_anywhere, run
from tests.sim.test_tx_families import group_with
from tests.sim.tx_clients import Reader, Teller, place
from tests.sim.tx_fleet import Fleet


@pytest.mark.parametrize("again", ["same", "moved"])
def test_a_life_that_asks_again_gets_the_same_one(again: str) -> None:
    """The answer to its first request got lost, perhaps with the coordinator that gave it."""

    async def scenario(fleet: Fleet) -> None:
        teller = Teller(fleet, "t")
        await teller.init()
        old = teller.who

        async def renew(broker: Broker) -> Life:
            return await broker.transactions.init("t", who=old)

        first = await teller.ask(teller.where, renew)
        if again == "moved":
            await elsewhere(fleet, teller)
        assert await teller.ask(teller.where, renew) == first
        await teller.init()
        with pytest.raises(ProducerFencedError):
            await teller.ask(teller.where, renew)

    run(scenario)


async def is_held_up(fleet: Fleet, where: TopicPartition, work: Coroutine[Any, Any, Any]) -> bool:
    """Return True if some work goes on only when what is written to a partition is committed."""
    fleet.held_up.add(where)
    task = asyncio.create_task(work)
    await asyncio.sleep(2)
    was_done = task.done()
    fleet.held_up.discard(where)
    await task
    return not was_done


def test_nothing_is_said_before_it_is_committed() -> None:
    """Places, decisions, control frames and acks: each is on all replicas before anybody relies."""

    async def scenario(fleet: Fleet) -> None:
        teller = Teller(fleet, "t")
        worker = await group_with(fleet, "1", "2", "3", "4")
        await teller.init()
        await teller.begin()
        (leased,) = await worker.poll(2)
        home = fleet.leader(teller.where)
        number = next(one for one in range(3) if fleet.leader(place("accounts", one)) != home)
        where = place("accounts", number)
        fleet.held_up.add(teller.where)
        sending = asyncio.create_task(teller.publish("accounts", number, "x"))
        holding = asyncio.create_task(teller.hold(leased))
        await asyncio.sleep(2)
        assert fleet.led(where).log.end_offset == 0, "the place is not known yet"
        assert open_anywhere(fleet) == []
        fleet.held_up.clear()
        await sending
        assert await holding == 0
        fleet.counts.clear()
        fleet.held_up.add(teller.where)
        ending = asyncio.create_task(teller.end(COMMIT))
        await asyncio.sleep(2)
        assert PeerOperation.TX_MARK not in fleet.counts, "nothing is decided yet"
        assert list(fleet.led(where).queue.tx)
        fleet.held_up.clear()
        await ending
        for beside in (where, place(STATE_TOPIC, 0)):
            await teller.begin()
            await teller.publish("accounts", number, "y")
            if beside != where:
                await teller.offsets("in", 0, 4)
            assert await is_held_up(fleet, beside, teller.end(COMMIT))

    run(scenario)


def test_messages_that_the_disk_has_not_are_stored_before_the_decision() -> None:
    """Where acks do not wait for the disk, all or nothing holds: a commit waits for it instead."""

    async def scenario(fleet: Fleet) -> None:
        teller, reader = Teller(fleet, "t"), Reader(fleet)
        for node in fleet.nodes.values():
            node.up.configure_topic("accounts", {"durability": "os"})
        await teller.init()
        await teller.begin()
        for partition in range(3):
            await teller.publish("accounts", partition, "x")
        fleet.counts.clear()
        await teller.end(COMMIT)
        assert fleet.counts[PeerOperation.TX_MARK] == 4, "two leaders are asked, then told"
        for where in (place("accounts", one) for one in range(3)):
            leader = fleet.leader(where)
            assert leader is not None
            assert fleet.partition(leader, where).log.durable_offset, "on the leader's disk"
        for partition in range(3):
            assert await reader.values("accounts", partition) == ["x"]

    run(scenario)


def test_the_latest_transaction_of_a_producer_is_known_everywhere() -> None:
    """So that a gateway can publish for who names the producer alone."""

    async def scenario(fleet: Fleet) -> None:
        teller = Teller(fleet, "t")
        await teller.init()
        await teller.begin()
        life = Identity(producer_id=teller.who.producer_id, epoch=teller.who.epoch)
        for name in fleet.nodes:
            found = await fleet.call(name, partial(resolve, life, None))
            assert found == teller.who
            with pytest.raises(UnknownProducerError):
                await fleet.call(name, partial(resolve, life, "u"))
            strange = Identity(producer_id=life.producer_id + 500, epoch=0)
            with pytest.raises(UnknownProducerError):
                await fleet.call(name, partial(resolve, strange, None))

    run(scenario)


async def resolve(who: Identity, name: str | None, broker: Broker) -> Identity:
    """Find out of which transaction somebody speaks."""
    return await broker.transactions.resolve(who, name)
