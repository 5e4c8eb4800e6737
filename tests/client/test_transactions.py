"""Transactions of the SDK: all or nothing over topics, acks and offsets; who is fenced is told."""

from time import time_ns

import pytest

import goqueue
from goqueue.base.errors import (
    ClosedError,
    GoQueueError,
    InvalidRequestError,
    InvalidTransactionStateError,
    ProducerFencedError,
    StaleReceiptError,
    TopicNotFoundError,
)
from goqueue.client.tx import gatherer as transaction_gatherer
from goqueue.client.tx.session import TxSession
from tests.client.consuming import eventually, lag, publish, take

NOTE = "batch 7"


def values(client: goqueue.Client, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return what a reader gets."""
    found = [message.value or b"" for message in client.read(topic, isolation=isolation)]
    batches = client.read_batches(topic, isolation=isolation)
    assert sum(batch.num_rows for batch in batches) == len(found)
    return sorted(found)


def test_a_block_that_ends_is_committed(broker: goqueue.Client, orders: str, group: str) -> None:
    """Readers see nothing of an open transaction, and all of it when it is committed."""
    broker.create_topic(f"other-{group}", partitions=2)
    with broker.producer(orders, transactional_id=group) as producer:
        with producer.transaction() as tx:
            sent = [tx.send(b"%d" % number) for number in range(10)]
            tx.send(b"elsewhere", topic=f"other-{group}", key=b"k", headers={"a": "b"})
            assert sent[0].result(60).topic == orders
            assert values(broker, orders) == []
            assert len(values(broker, orders, "read_uncommitted")) > 0
        assert not tx.is_open
        assert all(future.done() for future in sent)
    assert values(broker, orders) == sorted(b"%d" % number for number in range(10))
    assert values(broker, f"other-{group}") == [b"elsewhere"]


def test_messages_do_not_wait_for_ever(broker: goqueue.Client, orders: str, group: str) -> None:
    """A transaction that stays open publishes what it has, also behind one that was quick."""
    with broker.producer(orders, transactional_id=group) as producer:
        for number in range(2):
            with producer.transaction() as tx:
                tx.send(b"quick %d" % number)
            with producer.transaction() as tx:
                sent = tx.send(b"slow %d" % number)
                eventually(sent.done)
    assert len(values(broker, orders)) == 4


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_block_that_raises_is_aborted(
    broker: goqueue.Client, orders: str, group: str, kind: type[BaseException]
) -> None:
    """Nothing of it is ever seen; the producer goes on with the next one."""
    with broker.producer(orders, transactional_id=group) as producer:
        for number in range(4):
            with pytest.raises(kind), producer.transaction() as tx:  # noqa: PT012 - a block
                sent = tx.send(b"aborted")
                if number % 2:
                    sent.result(60)
                raise kind
            with producer.transaction() as tx:
                tx.send(b"committed %d" % number)
    assert values(broker, orders) == [b"committed %d" % number for number in range(4)]
    assert b"aborted" in values(broker, orders, "read_uncommitted")


def test_many_transactions_of_many_messages(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """Batches of a transaction keep their order and their number, aborted ones between them."""
    with broker.producer(orders, transactional_id=group, linger_ms=1) as producer:
        for number in range(12):
            tx = producer.transaction()
            tx.begin()
            for row in range(500):
                tx.send(b"%d" % row, key=b"%d" % (row % 7), headers={"tx": str(number)})
            if number % 3 == 2:
                tx.abort()
            else:
                tx.commit()
    rows: dict[tuple[bytes, bytes], list[int]] = {}
    for message in broker.read(orders):
        sender = (message.headers or {})["tx"], message.key or b""
        rows.setdefault(sender, []).append(int(message.value or b""))
    assert {int(tx) for tx, _ in rows} == {number for number in range(12) if number % 3 != 2}
    assert sum(map(len, rows.values())) == 8 * 500
    assert all(found == sorted(found) for found in rows.values())


def test_acks_are_settled_with_the_commit(broker: goqueue.Client, orders: str, group: str) -> None:
    """Read, transform, write: an aborted transaction gives its messages back to be tried again."""
    publish(broker, orders, 20)
    out = f"out-{group}"
    broker.create_topic(out, partitions=1)
    with (
        broker.producer(out, transactional_id=group) as producer,
        broker.consumer(group, [orders]) as consumer,
    ):
        messages = take(consumer, 20)
        with pytest.raises(ValueError, match="twice"), producer.transaction() as tx:  # noqa: PT012
            for message in messages[:10]:
                tx.send(b"lost")
                tx.ack(message)
            with pytest.raises(StaleReceiptError):
                messages[0].ack()
            raise ValueError("twice")
        assert [one.is_settled for one in messages] == [False] * 20
        with producer.transaction() as tx:
            for message in messages:
                tx.send(b"done " + (message.value or b""))
                tx.ack(message)
            assert lag(broker, group) == 20
        assert messages[0].is_settled
        eventually(lambda: lag(broker, group) == 0)
    assert values(broker, out) == sorted(b"done %d" % number for number in range(20))


def test_a_lost_lease_undoes_the_transaction(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """Who does not hold a message any more cannot settle it, and what it published is not seen."""
    publish(broker, orders, 1)
    with (
        broker.producer(orders, transactional_id=group) as producer,
        broker.consumer(group, [orders]) as consumer,
    ):
        (message,) = take(consumer, 1)
        tx = producer.transaction()
        tx.begin()
        tx.send(b"of a zombie")
        tx.ack(message)
        # As if the broker had given the message to somebody else meanwhile.
        message.lease.nonce += 1
        with pytest.raises(GoQueueError, match="offset"):
            tx.commit()
        assert not tx.is_open
    assert values(broker, orders) == [b"0"]


def test_offsets_are_settled_with_the_commit(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """A stream reader keeps its place in the group, atomically with what it wrote."""
    publish(broker, orders, 30)
    broker.consumer(group, [orders]).close()
    with broker.producer(orders, transactional_id=group) as producer:
        with pytest.raises(ValueError, match="no"), producer.transaction() as tx:  # noqa: PT012
            tx.send_offsets(group, {(orders, 0): 5})
            raise ValueError("no")
        with producer.transaction() as tx:
            tx.send_offsets(group, {(orders, 0): 3})
            tx.send_offsets(group, {(orders, 0): 7, (orders, 1): 2})
    offsets = broker.group_offsets(group)
    assert (offsets[orders, 0], offsets[orders, 1]) == (7, 2)


def test_a_successor_fences_and_undoes(broker: goqueue.Client, orders: str, group: str) -> None:
    """The zombie is told on every call from then on, and what it left open is never seen."""
    zombie = broker.producer(orders, transactional_id=group)
    tx = zombie.transaction()
    tx.begin()
    tx.send(b"left open").result(60)
    with broker.producer(orders, transactional_id=group) as successor:
        with successor.transaction() as other:
            other.send(b"mine")
        late = tx.send(b"late")
        with pytest.raises(ProducerFencedError):
            tx.commit()
        assert isinstance(late.exception(60), ProducerFencedError)
        with pytest.raises(ProducerFencedError), zombie.transaction():
            pass
        with pytest.raises(ProducerFencedError):
            zombie.send(b"outside")
        zombie.close()
        with successor.transaction() as other:
            other.send(b"mine, too")
    assert values(broker, orders) == [b"mine", b"mine, too"]


def test_the_token_of_a_commit_comes_back(broker: goqueue.Client, orders: str, group: str) -> None:
    """A sink finds out what its last commit was; an aborted one leaves none."""
    with broker.producer(orders, transactional_id=group) as producer:
        assert producer.last_token == ""
        with producer.transaction() as tx:
            tx.send(b"1")
            tx.commit(token=NOTE)
        assert producer.last_token == NOTE
        tx = producer.transaction()
        tx.begin()
        tx.abort()
    with broker.producer(orders, transactional_id=group) as producer:
        assert producer.last_token == NOTE


def test_what_makes_no_sense_is_refused(broker: goqueue.Client, orders: str, group: str) -> None:
    """Outside, nested, twice, after the end, in a plain producer: each says what is wrong."""
    with broker.producer(orders) as plain, pytest.raises(InvalidTransactionStateError):
        plain.transaction()
    with pytest.raises(ValueError, match="acks"):
        broker.producer(orders, transactional_id=group, acks="none")
    producer = broker.producer(orders, transactional_id=group)
    with pytest.raises(InvalidTransactionStateError, match="no transaction is open"):
        producer.send(b"outside")
    tx = producer.transaction()
    with pytest.raises(InvalidTransactionStateError):
        tx.send(b"not begun")
    with tx:
        with pytest.raises(InvalidTransactionStateError, match="one at a time"):
            producer.transaction().begin()
        with pytest.raises(InvalidTransactionStateError, match="once"):
            tx.begin()
        with pytest.raises(InvalidRequestError, match="dedup_id"):
            producer.send(b"", dedup_id="a")
        with pytest.raises(TopicNotFoundError):
            tx.send(b"", topic="nowhere")
        producer.send(b"inside")
    for late in (tx.commit, lambda: tx.send(b"late"), lambda: tx.send_offsets("g", {})):
        with pytest.raises(InvalidTransactionStateError):
            late()
    tx.abort()
    with producer.transaction() as following, pytest.raises(InvalidTransactionStateError):
        tx.send(b"into the next one")
    assert not following.is_open
    producer.close()
    with pytest.raises(ClosedError), producer.transaction():
        pass
    assert values(broker, orders) == [b"inside"]


def test_a_message_that_is_refused_undoes_the_transaction(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """The commit raises why, nothing is seen, and the next transaction goes through."""
    broker.create_topic(f"gone-{group}", partitions=1)
    with broker.producer(orders, transactional_id=group) as producer:
        tx = producer.transaction()
        tx.begin()
        tx.send(b"good")
        tx.send(b"bad", topic=f"gone-{group}").result(60)
        broker.delete_topic(f"gone-{group}")
        bad = tx.send(b"bad", topic=f"gone-{group}")
        with pytest.raises(TopicNotFoundError):
            tx.commit()
        assert isinstance(bad.exception(60), TopicNotFoundError)
        assert values(broker, orders) == []
        with producer.transaction() as tx:
            tx.send(b"better")
    assert values(broker, orders) == [b"better"]


def test_a_producer_that_closes_leaves_nothing_open(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """What was open is aborted at once, so readers do not wait for its time to be over."""
    producer = broker.producer(orders, transactional_id=group)
    tx = producer.transaction()
    tx.begin()
    tx.send(b"open").result(60)
    producer.close()
    with broker.producer(orders) as plain:
        plain.send(b"behind")
    assert values(broker, orders) == [b"behind"]


def test_a_turn_that_comes_too_late_for_the_next_number_asks_for_another(
    broker: goqueue.Client, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may have begun, and failed, while this one waited for its turn."""
    with broker.producer(orders, transactional_id=group) as producer:
        with producer.transaction() as tx:
            tx.send(b"1")
        take_turn = vars(TxSession)["_take_turn"]

        def take_late(session: TxSession) -> None:
            take_turn(session)
            vars(session).update(_next=0, _must_renew=True)

        monkeypatch.setattr(TxSession, "_take_turn", take_late)
        with producer.transaction() as tx:
            tx.send(b"2")
    assert values(broker, orders) == [b"1", b"2"]


def test_a_kept_send_is_refused_when_its_transaction_is_over(
    client: goqueue.Client, topic: str
) -> None:
    """What was meant for one transaction never gets into the next of the same producer."""
    with client.producer(topic, transactional_id="kept") as producer:
        with producer.transaction() as first:
            send = first.send
            send(b"1", key=b"k")
        with producer.transaction() as second:
            second.send(b"2", key=b"k")
            with pytest.raises(InvalidTransactionStateError, match="this transaction is not open"):
                send(b"late", key=b"k")
            second.send(b"3", key=b"k")

    assert [message.value for message in client.read(topic, end="latest")] == [b"1", b"2", b"3"]


def test_a_clock_that_is_set_back_holds_nothing_up(
    broker: goqueue.Client, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was gathered before is sent after its linger, not when the clock has caught up."""
    with (
        broker.producer(orders, transactional_id=group) as producer,
        producer.transaction() as tx,
    ):
        tx.send(b"warm").result(60)
        monkeypatch.setattr(transaction_gatherer, "time_ns", lambda: time_ns() - 3_600 * 10**9)

        sent = tx.send(b"a")
        eventually(sent.done)
