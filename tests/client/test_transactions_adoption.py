"""The work of many producers is committed by one: detached, handed over, adopted."""

import asyncio
import json
import pickle

import pytest

import goqueue
from goqueue import Detached, aio
from goqueue.base.errors import AdoptionRefusedError, InvalidTransactionStateError
from tests.client.consuming import eventually, lag, publish, take
from tests.client.test_transactions import values

NOTE = "batch 7"


def work(client: goqueue.Client, topic: str, name: str, *entries: bytes) -> Detached:
    """Do what a task does: publish, and leave the rest to its driver."""
    with client.producer(topic, transactional_id=name) as producer:
        tx = producer.transaction()
        tx.begin()
        for entry in entries:
            tx.send(entry, key=entry)
        return tx.detach()


def test_only_what_the_driver_adopts_is_seen(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """All of it in one step with the token; the attempts nobody adopted are aborted."""
    rows = [b"%d" % number for number in range(300)]
    first = work(broker, orders, f"{group}-p0-a0", *rows[:100])
    second = work(broker, orders, f"{group}-p1-a1", *rows[100:])
    failed = work(broker, orders, f"{group}-p1-a0", b"a failed attempt")
    again = pickle.loads(pickle.dumps(first))  # noqa: S301 - our own
    handles = [again, Detached(*json.loads(json.dumps(second)))]
    with broker.producer(orders, transactional_id=group) as driver:
        assert driver.last_token == ""
        with driver.transaction() as tx:
            tx.adopt(handles)
            assert broker.describe_transaction(group).adopted == (
                f"{group}-p0-a0",
                f"{group}-p1-a1",
            )
            assert broker.describe_transaction(first.transactional_id).adopter == group
            tx.adopt([])
            assert values(broker, orders) == []
            tx.commit(token=NOTE)
    broker.abort_detached([failed, *handles])

    assert values(broker, orders) == sorted(rows)
    with broker.producer(orders, transactional_id=group) as heir:
        assert heir.last_token == NOTE


def test_a_driver_that_fails_undoes_the_work(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """An error in the block aborts what was adopted; the ids can be used for the next attempt."""
    with broker.producer(orders, transactional_id=group) as driver:
        for attempt in range(2):
            handle = work(broker, orders, f"{group}-task", b"attempt %d" % attempt)
            if attempt == 0:
                with pytest.raises(ValueError, match="no"), driver.transaction() as tx:  # noqa: PT012
                    tx.adopt([handle])
                    raise ValueError("no")
            else:
                with driver.transaction() as tx:
                    tx.adopt([handle])
    assert values(broker, orders) == [b"attempt 1"]


def test_what_cannot_be_adopted_is_named(broker: goqueue.Client, orders: str, group: str) -> None:
    """The driver hears which attempt is gone, and its transaction is as open as before."""
    good = work(broker, orders, f"{group}-good", b"good")
    gone = work(broker, orders, f"{group}-gone", b"gone")
    newer = work(broker, orders, f"{group}-gone", b"a newer attempt")
    with broker.producer(orders, transactional_id=group) as driver, driver.transaction() as tx:
        with pytest.raises(AdoptionRefusedError, match=f"{group}-gone: transaction .* fenced"):
            tx.adopt([good, gone])
        tx.send(b"goes on")
        tx.adopt([good])
    broker.abort_detached([newer])
    assert values(broker, orders) == [b"goes on", b"good"]


def test_a_producer_that_detached_is_done(broker: goqueue.Client, orders: str, group: str) -> None:
    """Whatever it does later, it does not abort what it handed over."""
    with broker.producer(orders, transactional_id=f"{group}-task") as producer:
        with producer.transaction() as tx:
            tx.send(b"handed over")
            handle = tx.detach()
            assert not tx.is_open
        with pytest.raises(InvalidTransactionStateError, match="detached"):
            producer.transaction().begin()
    with broker.producer(orders, transactional_id=group) as driver, driver.transaction() as tx:
        tx.adopt([handle])
    assert values(broker, orders) == [b"handed over"]


def test_acks_are_adopted_too(broker: goqueue.Client, orders: str, group: str) -> None:
    """What a task consumed is settled with the commit of its driver."""
    publish(broker, orders, 10)
    with broker.consumer(group, [orders]) as consumer:
        messages = take(consumer, 10)
        producer = broker.producer(orders, transactional_id=f"{group}-task")
        tx = producer.transaction()
        tx.begin()
        for message in messages:
            tx.ack(message)
        handle = tx.detach()
        assert lag(broker, group) == 10
        with broker.producer(orders, transactional_id=group) as driver, driver.transaction() as tx:
            tx.adopt([handle])
        eventually(lambda: lag(broker, group) == 0)


def test_in_an_event_loop(address: str, client: goqueue.Client, topic: str) -> None:
    """The same, awaited."""

    async def task(client: aio.AsyncClient, number: int) -> Detached:
        async with client.producer(topic, transactional_id=f"{topic}-{number}") as producer:
            tx = producer.transaction()
            await tx.begin()
            tx.send(b"%d" % number)
            return await tx.detach()

    async def story() -> None:
        async with await aio.connect(address) as connected:
            handles = await asyncio.gather(*(task(connected, number) for number in range(20)))
            async with connected.producer(topic, transactional_id=topic) as driver:
                async with driver.transaction() as tx:
                    await tx.adopt(handles[:10])
                    await tx.commit(token=NOTE)
                assert driver.last_token == NOTE
            await connected.abort_detached(handles[10:])

    asyncio.run(asyncio.wait_for(story(), 120))
    assert values(client, topic) == sorted(b"%d" % number for number in range(10))
    assert client.list_transactions(open_only=True) == []
