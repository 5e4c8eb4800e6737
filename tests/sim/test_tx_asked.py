"""What nodes of a cluster ask each other about transactions beside their places and ends."""

from functools import partial

import pytest

from goqueue.base.errors import ProducerFencedError, UnknownProducerError
from goqueue.core.tx.producer import COMMIT, Identity
from goqueue.runtime.broker import Broker
from goqueue.runtime.tx.producer_sessions import Life
from goqueue.wire.peer_calls import PeerOperation
from tests.sim.test_tx_cluster import elsewhere, run
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
        for name in fleet.nodes:
            assert all(
                fleet.partition(name, place("accounts", one)).log.durable_offset for one in range(3)
            )
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
