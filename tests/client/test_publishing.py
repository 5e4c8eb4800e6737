"""Publishing through the SDK, against a real broker."""

import threading
from datetime import UTC, datetime

import pytest

import goqueue
from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    GoQueueError,
    InvalidRequestError,
    PartitionNotFoundError,
    TooLargeError,
    TopicNotFoundError,
)
from goqueue.base.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX


def test_a_message_comes_back_whole(client: goqueue.Client, topic: str) -> None:
    """Key, value, headers, priority and time are what was sent."""
    when = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    place = (
        client.producer(topic)
        .send(b"value", key=b"k", headers={"a": "b", "c": b"\xff"}, priority="high", timestamp=when)
        .result(60)
    )
    (message,) = client.read(topic)

    assert (message.key, message.value, message.priority) == (b"k", b"value", 1)
    assert message.headers == {"a": b"b", "c": b"\xff"}
    assert message.timestamp_us == int(when.timestamp() * 1_000_000)
    assert (message.partition, message.offset) == (place.partition, place.offset)
    assert place.durability == "fsync"


def test_an_ack_that_did_not_wait_does_not_promise(client: goqueue.Client, topic: str) -> None:
    """Without waiting for the disk the ack says so."""
    assert client.producer(topic, acks="none").send(b"x").result(60).durability == "os"


def test_keys_choose_partitions_by_murmur3(client: goqueue.Client, topic: str) -> None:
    """G6: user-300 belongs to partition 2 of 3, wherever it is sent from."""
    assert client.producer(topic).send(b"x", key=b"user-300").result(60).partition == 2


def test_keyless_messages_take_turns(client: goqueue.Client, topic: str) -> None:
    """Without keys every partition gets its share."""
    producer = client.producer(topic)
    for number in range(30):
        producer.send(b"%d" % number)
    producer.flush(60)

    counts = [part.end_offset for part in client.describe_topic(topic).partitions]
    assert counts == [10, 10, 10]


def test_an_explicit_partition_is_honoured(client: goqueue.Client, topic: str) -> None:
    """The caller's choice beats the key's."""
    producer = client.producer(topic)

    assert producer.send(b"x", key=b"user-300", partition=0).result(60).partition == 0
    with pytest.raises(PartitionNotFoundError, match="topic has 3 partitions"):
        producer.send(b"x", partition=3)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_many_messages_keep_their_order(
    client: goqueue.Client, topic: str, compression: str | None
) -> None:
    """Within a partition messages come out as they went in, and each future knows its place."""
    producer = client.producer(topic, compression=compression)
    keys = [b"key-%d" % (number % 100) for number in range(20_000)]
    futures = [producer.send(b"value-%d" % n, key=key) for n, key in enumerate(keys)]
    producer.flush(60)
    places = {(f.result().partition, f.result().offset): n for n, f in enumerate(futures)}
    last: dict[int, int] = {}

    for message in client.read(topic):
        number = int((message.value or b"").rpartition(b"-")[2])
        assert places[message.partition, message.offset] == number
        assert message.key == keys[number]
        assert number > last.get(message.partition, -1)
        last[message.partition] = number
    assert len(places) == 20_000


def test_a_tombstone_is_told_from_an_empty_value(client: goqueue.Client, topic: str) -> None:
    """None and b"" stay apart, alone and in a batch."""
    producer = client.producer(topic)
    for value in (None, b"", None, b"", b"x", None):
        producer.send(value, key=b"k")
    producer.flush(60)

    assert [m.value for m in client.read(topic)] == [None, b"", None, b"", b"x", None]


def test_sizes_are_bounded_where_they_are_sent(client: goqueue.Client, topic: str) -> None:
    """A message at a limit goes through; one byte more is refused at once, naming the field."""
    producer = client.producer(topic)
    largest = producer.send(b"v" * VALUE_BYTES_MAX, key=b"k" * KEY_BYTES_MAX).result(60)

    assert largest.offset == 0
    with pytest.raises(TooLargeError, match=r"value: 16777217 bytes; the limit is 16777216"):
        producer.send(b"v" * (VALUE_BYTES_MAX + 1))
    with pytest.raises(TooLargeError, match=r"key: 65536 bytes; the limit is 65535"):
        producer.send(b"v", key=b"k" * (KEY_BYTES_MAX + 1))
    with pytest.raises(TooLargeError, match="headers"):
        producer.send(b"v", headers={"h": b"x" * 70_000})
    with pytest.raises(InvalidRequestError, match="reserved"):
        producer.send(b"v", headers={"__producer": b"x"})
    with pytest.raises(TypeError, match="value must be bytes"):
        producer.send("text")  # type: ignore[arg-type]


def test_a_dedup_id_returns_the_original(client: goqueue.Client) -> None:
    """P3: inside its window a repeat is not written again, whatever partition it would go to."""
    client.create_topic("deduplicated", partitions=3, dedup_window_ms="10m")
    producer = client.producer("deduplicated")
    first = producer.send(b"one", key=b"a", dedup_id="id-1").result(60)
    again = producer.send(b"two", key=b"b", dedup_id="id-1").result(60)

    assert (again.partition, again.offset) == (first.partition, first.offset)
    assert again.is_duplicate
    assert [m.value for m in client.read("deduplicated")] == [b"one"]


def test_errors_reach_the_future_and_the_callback(client: goqueue.Client, topic: str) -> None:
    """What the broker refuses fails its own messages, and the callback hears of it."""
    heard: list[tuple[GoQueueError, int]] = []
    producer = client.producer(topic, on_error=lambda error, count: heard.append((error, count)))
    producer.send(b"x").result(60)
    client.delete_topic(topic)
    future = producer.send(b"y")

    assert isinstance(future.exception(60), TopicNotFoundError)
    assert [(type(error), count) for error, count in heard] == [(TopicNotFoundError, 1)]


def test_threads_may_share_a_producer(client: goqueue.Client, topic: str) -> None:
    """Every message of every thread arrives once."""
    producer = client.producer(topic)

    def send(name: int) -> None:
        for number in range(2_000):
            producer.send(b"%d-%d" % (name, number), key=b"%d" % number)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(60)

    values = [message.value for message in client.read(topic)]
    assert len(values) == len(set(values)) == 8_000


def test_a_small_buffer_pushes_back(client: goqueue.Client, topic: str) -> None:
    """A full buffer makes send wait instead of growing, and nothing is lost by it."""
    producer = client.producer(topic, buffer_bytes=20_000, batch_bytes=2_000)
    for number in range(5_000):
        producer.send(b"x" * 100, key=b"%d" % number)
    producer.flush(60)

    assert sum(1 for _ in client.read(topic)) == 5_000


def test_a_closed_producer_says_so(client: goqueue.Client, topic: str) -> None:
    """After close, send raises instead of losing messages quietly."""
    with client.producer(topic) as producer:
        producer.send(b"x")

    assert sum(1 for _ in client.read(topic)) == 1
    with pytest.raises(ClosedError):
        producer.send(b"y")


def test_a_broker_that_is_not_there_is_said_at_once() -> None:
    """Connecting where nobody listens fails without waiting for the timeout."""
    with pytest.raises(ConnectionLostError, match="cannot reach a broker at"):
        goqueue.connect("127.0.0.1:1")
