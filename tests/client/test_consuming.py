"""Consuming in a loop: delivery, settling, order, and what is refused."""

import random
import time
from collections import deque
from collections.abc import Iterator

import pytest

import goqueue
from goqueue.base.errors import (
    ClosedError,
    GroupConflictError,
    InvalidRequestError,
    ReceiptExpiredError,
    StaleReceiptError,
    TopicNotFoundError,
)
from tests.client.consuming import eventually, in_flight, lag, publish, take


def test_every_message_comes_once_and_is_settled(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """A loop with one ack per message sees everything once; the group's lag is nothing then."""
    values = publish(broker, orders, 5_000, keys=50)
    with broker.consumer(group, [orders]) as consumer:
        found = []
        for message in consumer:
            assert message.delivery_count == 1
            found.append(message.value)
            message.ack()
            if len(found) == len(values):
                break
        consumer.flush()

        assert sorted(map(bytes, filter(None, found))) == sorted(values)
        assert lag(broker, group) == 0
        assert sum(broker.group_offsets(group).values()) == len(values)


def test_a_partition_comes_in_order(broker: goqueue.Client, orders: str, group: str) -> None:
    """Within a partition messages come in the order of their offsets."""
    publish(broker, orders, 3_000, keys=10)
    last: dict[int, int] = {}
    with broker.consumer(group, [orders], prefetch=64) as consumer:
        for message in take(_acking(consumer), 3_000):
            assert message.offset == last.get(message.partition, -1) + 1
            last[message.partition] = message.offset


def test_a_nacked_message_comes_again(broker: goqueue.Client, orders: str, group: str) -> None:
    """After its delay, counted, and with the rest going on meanwhile."""
    publish(broker, orders, 3)
    with broker.consumer(group, [orders]) as consumer:
        seen: dict[bytes | None, list[int]] = {}
        for message in consumer:
            seen.setdefault(message.value, []).append(message.delivery_count)
            if message.value == b"1" and message.delivery_count < 3:
                message.nack(delay="10ms", reason="not yet")
            else:
                message.ack()
            if sum(map(len, seen.values())) == 5:
                break

    assert seen == {b"0": [1], b"1": [1, 2, 3], b"2": [1]}


def test_a_lease_that_is_over(broker: goqueue.Client, orders: str, group: str) -> None:
    """What is not settled in time is delivered again; the late ack is refused and told."""
    publish(broker, orders, 1)
    refused: list[goqueue.Refusal] = []
    with broker.consumer(group, [orders], on_refused=refused.append) as consumer:
        messages = iter(consumer)
        first = next(messages)
        first.extend("500ms")
        second = next(messages)
        first.ack()
        consumer.flush()
        second.ack()
        consumer.flush()

    assert (first.offset, first.delivery_count, second.delivery_count) == (second.offset, 1, 2)
    assert [(one.offset, one.verb) for one in refused] == [(first.offset, "ack")]
    assert isinstance(refused[0].error, (StaleReceiptError, ReceiptExpiredError))


def test_flush_raises_what_was_refused(broker: goqueue.Client, orders: str, group: str) -> None:
    """A refusal nobody listens for is raised by the next flush, once."""
    publish(broker, orders, 1)
    with broker.consumer(group, [orders]) as consumer:
        messages = iter(consumer)
        first = next(messages)
        first.extend("500ms")
        second = next(messages)
        first.ack()
        with pytest.raises((StaleReceiptError, ReceiptExpiredError), match="1 settlements"):
            consumer.flush()
        second.ack()
        consumer.flush()


def test_settling_twice(broker: goqueue.Client, orders: str, group: str) -> None:
    """The second settlement of a message is refused on the spot."""
    publish(broker, orders, 1)
    with broker.consumer(group, [orders]) as consumer:
        (message,) = take(consumer, 1)
        message.ack()
        for settle in (message.ack, message.nack, message.reject, lambda: message.extend(5)):
            with pytest.raises(StaleReceiptError, match="already settled"):
                settle()
        assert message.is_settled


def test_a_rejected_message_does_not_come_again(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """It is on its way to the dead letters, and not in flight."""
    publish(broker, orders, 2)
    with broker.consumer(group, [orders]) as consumer:
        for message in take(consumer, 2):
            message.reject("bad")
        consumer.flush()
        eventually(lambda: in_flight(broker, group) == 0)

        assert consumer.poll(timeout=0.1) == []


def test_the_receipt_names_the_delivery(broker: goqueue.Client, orders: str, group: str) -> None:
    """It is the text other transports take."""
    publish(broker, orders, 1)
    with broker.consumer(group, [orders]) as consumer:
        (message,) = take(consumer, 1)
        topic, partition, offset, count, nonce = message.receipt.split(":")

        assert (topic, int(partition), int(offset)) == (orders, message.partition, message.offset)
        assert count == "1"
        assert len(nonce) == 16


def test_the_messages_of_a_key_wait_for_one_another(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """With ordering by key the next message of a key comes after the one before is settled."""
    publish(broker, orders, 300, keys=3)
    open_keys: set[bytes | None] = set()
    last: dict[bytes | None, int] = {}
    with broker.consumer(group, [orders], ordering="key") as consumer:
        pending: list[goqueue.Delivery] = []
        done = 0
        while done < 300:
            for message in consumer.poll(timeout=1):
                assert message.key not in open_keys
                assert int(message.value or b"") > last.get(message.key, -1)
                open_keys.add(message.key)
                last[message.key] = int(message.value or b"")
                pending.append(message)
            for message in pending:
                open_keys.discard(message.key)
                message.ack()
                done += 1
            pending.clear()


def test_a_stuck_key_with_a_long_line_stops_no_other(broker: goqueue.Client, group: str) -> None:
    """However many messages wait behind one, those of other keys are found."""
    topic = f"stuck-{group}"
    broker.create_topic(topic, partitions=1)
    with broker.producer(topic) as producer:
        for _ in range(250_000):
            producer.send(b"", key=b"stuck")
        producer.send(b"found", key=b"free")
    with broker.consumer(group, [topic], ordering="key") as consumer:
        stuck, free = take(consumer, 2)
        free.ack()

        assert (stuck.key, stuck.offset) == (b"stuck", 0)
        assert (free.key, free.value) == (b"free", b"found")
    broker.delete_topic(topic)


def test_many_keys_lie_scattered_in_large_batches(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """Messages leased here and there in a frame come once each, every key in its order."""
    dice = random.Random(7)
    with broker.producer(orders) as producer:
        for number in range(20_000):
            producer.send(b"%d" % number, key=b"key-%d" % dice.randrange(3_000))
    last: dict[bytes | None, int] = {}
    places = set()
    options = {"ordering": "key", "prefetch": 4_000, "max_in_flight": 8_000}
    with broker.consumer(group, [orders], **options) as consumer:
        for message in take(_acking(consumer), 20_000):
            places.add((message.partition, message.offset))
            assert int(message.value or b"") > last.get(message.key, -1)
            last[message.key] = int(message.value or b"")

    assert len(places) == 20_000


def test_a_retry_among_many_under_way_holds_back_its_key(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """However much is fetched ahead, a message that is given back is the next of its key (P7)."""
    dice = random.Random(8)
    waiting: dict[bytes | None, deque[int]] = {}
    with broker.producer(orders) as producer:
        for number in range(12_000):
            key = b"key-%d" % dice.randrange(2_000)
            waiting.setdefault(key, deque()).append(number)
            producer.send(b"%d" % number, key=key)
    options = {"ordering": "key", "prefetch": 3_000, "max_in_flight": 6_000}
    left, retries = 12_000, 0
    with broker.consumer(group, [orders], **options) as consumer:
        for message in consumer:
            line = waiting[message.key]
            assert int(message.value or b"") == line[0]
            if message.delivery_count == 1 and dice.random() < 0.02:
                message.nack(delay=0)
                retries += 1
                continue
            line.popleft()
            message.ack()
            left -= 1
            if not left:
                break
        consumer.flush()

    assert retries > 100
    assert lag(broker, group) == 0


def test_what_was_not_handed_out_is_given_back(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """A consumer that ends in order leaves nothing to expire, and no attempt is counted."""
    values = publish(broker, orders, 500)
    with broker.consumer(group, [orders]) as consumer:
        for message in take(consumer, 3):
            message.ack()
    with broker.consumer(group, [orders]) as consumer:
        rest = take(_acking(consumer), len(values) - 3)

        assert {message.delivery_count for message in rest} == {1}


def test_auto_ack(broker: goqueue.Client, orders: str, group: str) -> None:
    """Asking for the next message acks the one before; closing sends it."""
    publish(broker, orders, 20)
    with broker.consumer(group, [orders], auto_ack=True) as consumer:
        take(consumer, 11)

    assert lag(broker, group) == 10


def test_settlements_go_out_by_themselves(broker: goqueue.Client, orders: str, group: str) -> None:
    """An ack reaches the broker while the handler is still busy with another message."""
    publish(broker, orders, 2)
    with broker.consumer(group, [orders]) as consumer:
        first, _ = take(consumer, 2)
        first.ack()

        eventually(lambda: lag(broker, group) == 1, "the settlement")


def test_waiting_messages_are_kept(broker: goqueue.Client, orders: str, group: str) -> None:
    """What waits behind a slow handler is extended: it does not expire and is not counted."""
    publish(broker, orders, 4)
    with broker.consumer(group, [orders], visibility_timeout="3s", max_retries=0) as consumer:
        messages = iter(consumer)
        first = next(messages)
        first.extend("1m")
        start = first.timestamp_us
        eventually(lambda: _now_us() - start > 6_500_000)
        rest = [next(messages) for _ in range(3)]
        for message in [first, *rest]:
            message.ack()
        consumer.flush()

    assert [message.delivery_count for message in rest] == [1, 1, 1]
    assert lag(broker, group) == 0


def test_a_consumer_that_waits_gets_what_comes(
    broker: goqueue.Client, orders: str, group: str
) -> None:
    """A poll under way is answered by a message published later."""
    with broker.consumer(group, [orders]) as consumer:
        assert consumer.poll(timeout=0.01) == []
        publish(broker, orders, 1)
        (message,) = take(consumer, 1)
        message.ack()


def test_several_topics(broker: goqueue.Client, orders: str, group: str) -> None:
    """One consumer reads all it names."""
    broker.create_topic(f"other-{group}", partitions=1)
    publish(broker, orders, 10)
    publish(broker, f"other-{group}", 10)
    with broker.consumer(group, [orders, f"other-{group}"]) as consumer:
        found = take(_acking(consumer), 20)

        assert {message.topic for message in found} == {orders, f"other-{group}"}
        assert len(consumer.assignment) == 4


def test_offsets_of_a_group(broker: goqueue.Client, orders: str, group: str) -> None:
    """They are committed as an owner, read, and reset by anybody."""
    publish(broker, orders, 30)
    with broker.consumer(group, [orders]) as consumer:
        consumer.poll()
        consumer.commit({(orders, partition): 5 for partition in range(3)})
        assert broker.group_offsets(group) == {(orders, partition): 5 for partition in range(3)}

    assert broker.reset_offsets(group, orders, 7, partitions=[1]) == {(orders, 1): 7}
    assert set(broker.reset_offsets(group, orders).values()) == {0}
    assert sum(broker.reset_offsets(group, orders, "latest").values()) == 30


def test_where_a_new_group_begins(broker: goqueue.Client, orders: str, group: str) -> None:
    """With ``start="latest"`` only what comes later is delivered."""
    publish(broker, orders, 10)
    with broker.consumer(group, [orders], start="latest") as consumer:
        assert consumer.poll(timeout=0.1) == []
        # A group begins in a partition with the first poll that the broker has seen.
        eventually(lambda: len(broker.group_progress(group)) == 3, "a place to begin")
        publish(broker, orders, 1)
        (message,) = take(consumer, 1)
        assert message.value == b"0"
        message.ack()


def test_bad_options(broker: goqueue.Client, orders: str) -> None:
    """Each is refused with its name, before a group is touched."""
    cases: list[dict[str, object]] = [
        {"mode": "both"},
        {"ordering": "value"},
        {"prefetch": 0},
        {"prefetch": "many"},
        {"visibility_timeout": "soon"},
        {"visibility_timeout": "1ms"},
        {"max_retries": -1},
        {"protocol": "none"},
        {"assignor": "best"},
        {"start": "middle"},
        {"settle_linger_ms": -1},
        {"max_in_flight": 0},
    ]
    for options in cases:
        with pytest.raises(InvalidRequestError, match=next(iter(options))):
            broker.consumer("bad-options", [orders], **options)
    with pytest.raises(InvalidRequestError, match="topics"):
        broker.consumer("bad-options", orders)
    with pytest.raises(TopicNotFoundError):
        broker.consumer("bad-options", ["missing"])


def test_other_options_than_the_groups(broker: goqueue.Client, orders: str, group: str) -> None:
    """A group with members refuses them; one that says nothing takes what there is."""
    with (
        broker.consumer(group, [orders], ordering="key"),
        broker.consumer(group, [orders]),
        pytest.raises(GroupConflictError),
    ):
        broker.consumer(group, [orders], ordering="none")


def test_after_close(broker: goqueue.Client, orders: str, group: str) -> None:
    """A closed consumer says so; closing it again, or its client, does nothing more."""
    consumer = broker.consumer(group, [orders])
    consumer.close()
    consumer.close()

    with pytest.raises(ClosedError):
        iter(consumer)
    with pytest.raises(ClosedError):
        consumer.poll()


def test_closing_the_client_closes_its_consumers(address: str, group: str) -> None:
    """What they hold goes back, and they leave the group."""
    with goqueue.connect(address) as other:
        other.create_topic(f"closing-{group}", partitions=1)
        publish(other, f"closing-{group}", 100)
        with goqueue.connect(address) as client:
            take(client.consumer(group, [f"closing-{group}"]), 1)
            assert in_flight(other, group) > 0

        assert in_flight(other, group) == 0
        assert other.describe_group(group).members == []


def _acking(consumer: goqueue.Consumer) -> Iterator[goqueue.Delivery]:
    for message in consumer:
        message.ack()
        yield message


def _now_us() -> int:
    return time.time_ns() // 1_000
