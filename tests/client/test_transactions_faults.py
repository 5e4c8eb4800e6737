"""Transactions over a bad network: what is lost is asked again, what is late changes nothing."""

from collections.abc import Iterator

import pytest

import goqueue
from goqueue.base.errors import ConnectionLostError, DiskFullError, InvalidTransactionStateError
from goqueue.testing.disk import MemoryDisk
from goqueue.wire.packet import Operation
from tests.client.consuming import eventually, lag, publish, take
from tests.client.failing import opened
from tests.client.proxy import Fate, Proxy


@pytest.fixture
def far(proxy: Proxy) -> Iterator[goqueue.Client]:
    with goqueue.connect(proxy.address, timeout=60) as client:
        yield client


def values(client: goqueue.Client, topic: str) -> list[bytes]:
    return sorted(message.value or b"" for message in client.read(topic))


@pytest.mark.parametrize("is_acked", [False, True])
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
@pytest.mark.parametrize(
    "operation", [Operation.TX_INIT, Operation.TX_BEGIN, Operation.PRODUCE, Operation.TX_END]
)
def test_a_lost_connection_leaves_one_copy(
    proxy: Proxy,
    far: goqueue.Client,
    client: goqueue.Client,
    topic: str,
    operation: Operation,
    fate: Fate,
    *,
    is_acked: bool,
) -> None:
    """Whichever request or answer is lost, the transaction is committed once (unknown outcomes).

    Messages that nobody waited for go out with the commit, in one request.
    """
    proxy.plan(operation, fate, fate)
    with far.producer(topic, transactional_id=topic) as producer:
        for number in range(3):
            with producer.transaction() as tx:
                sent = tx.send(b"%d" % number)
                if is_acked:
                    sent.result(60)
                tx.commit(token=str(number))
        assert int(producer.last_token) == 2
    assert values(client, topic) == [b"0", b"1", b"2"]
    assert client.list_transactions(open_only=True) == []


@pytest.mark.parametrize("operation", [Operation.PRODUCE, Operation.TX_END])
def test_a_late_commit_does_not_end_the_next(
    proxy: Proxy, far: goqueue.Client, client: goqueue.Client, topic: str, operation: Operation
) -> None:
    """A commit that arrives when its transaction is over changes nothing any more."""
    with far.producer(topic, transactional_id=topic) as producer:
        with producer.transaction() as tx:
            sent = tx.send(b"first")
            if operation is Operation.TX_END:
                sent.result(60)
            proxy.plan(operation, Fate.DELAY)
        following = producer.transaction()
        following.begin()
        following.send(b"second").result(60)
        ended = proxy.seen[operation]
        proxy.release()
        proxy.wait_for(operation, ended + 1)
        assert values(client, topic) == [b"first"]
        assert client.describe_transaction(topic).state == "Ongoing"
        following.abort()
    assert values(client, topic) == [b"first"]


def test_the_last_messages_commit(proxy: Proxy, far: goqueue.Client, topic: str) -> None:
    """What was gathered when a transaction commits goes out in one request with the commit."""
    far.create_topic(f"{topic}-other")
    with far.producer(topic, transactional_id=topic) as producer:
        for number in range(4):
            with producer.transaction() as tx:
                elsewhere = tx.send(b"elsewhere", topic=f"{topic}-other")
                if number % 2:
                    elsewhere.result(60)
                tx.send(b"%d" % number)
                tx.commit(token=str(number))
        assert producer.last_token == "3"  # noqa: S105
    assert values(far, topic) == [b"0", b"1", b"2", b"3"]
    assert values(far, f"{topic}-other") == [b"elsewhere"] * 4
    # Of two topics only one can have the last.
    assert proxy.seen[Operation.TX_END] == 2


def test_a_lost_hold_gives_the_messages_back(
    proxy: Proxy, far: goqueue.Client, client: goqueue.Client, topic: str
) -> None:
    """Nobody knows whether they are held: the transaction is undone, they come again once."""
    publish(client, topic, 5)
    proxy.plan(Operation.TX_HOLD, Fate.LOSE_REPLY)
    with (
        far.consumer(topic, [topic]) as consumer,
        far.producer(f"{topic}", transactional_id=topic) as producer,
    ):
        first = take(consumer, 5)
        tx = producer.transaction()
        tx.begin()
        for message in first:
            tx.ack(message)
        with pytest.raises(ConnectionLostError):
            tx.commit()
        again = take(consumer, 5)
        assert {one.value for one in again} == {one.value for one in first}
        with producer.transaction() as tx:
            for message in again:
                tx.ack(message)
        eventually(lambda: lag(client, topic) == 0)


def test_a_client_that_is_cut_off_is_told_in_the_end(
    proxy: Proxy, far: goqueue.Client, client: goqueue.Client, topic: str
) -> None:
    """An operator ended its transaction meanwhile: the commit says so, and the next one works."""
    with far.producer(topic, transactional_id=topic) as producer:
        tx = producer.transaction()
        tx.begin()
        tx.send(b"undone").result(60)
        proxy.cut()
        assert client.abort_transaction(topic).state == "CompleteAbort"
        with pytest.raises(InvalidTransactionStateError):
            tx.commit()
        with producer.transaction() as tx:
            tx.send(b"done")
    assert values(client, topic) == [b"done"]


def test_a_transaction_on_a_full_disk_says_so() -> None:
    """With the time of the transaction nearly over, and not with what that would lead to."""
    disk = MemoryDisk()
    with opened(disk) as (client, _):
        client.create_topic("orders", partitions=1)
        with client.producer(
            "orders", transactional_id="billing", transaction_timeout_ms=1_000
        ) as producer:
            with producer.transaction() as tx:
                tx.send(b"before")
            disk.fill_up()
            with pytest.raises(DiskFullError, match="not published in the transaction's time"):
                _send_one(producer)
            disk.make_room()
            with producer.transaction() as tx:
                tx.send(b"afterwards")

        assert [message.value for message in client.read("orders")] == [b"before", b"afterwards"]


def _send_one(producer: goqueue.Producer) -> None:
    with producer.transaction() as tx:
        tx.send(b"no room")
