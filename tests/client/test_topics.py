"""Topics and their settings through the SDK."""

import asyncio
import socket
import threading

import msgspec
import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import (
    InvalidConfigError,
    InvalidNameError,
    InvalidRequestError,
    TooLargeError,
    TopicExistsError,
    TopicNotFoundError,
)
from goqueue.base.limits import REQUEST_HEADER_BYTES_MAX
from goqueue.wire import calls
from goqueue.wire.packet import Kind, Operation, PacketReader, encode_packet


def test_a_topic_from_its_making_to_its_end(client: goqueue.Client) -> None:
    """What create says is what describe and list say, until delete."""
    made = client.create_topic("life", partitions=5, retention_ms="7d", segment_bytes="1MiB")
    described = client.describe_topic("life")

    assert made == described
    assert [part.partition for part in described.partitions] == list(range(5))
    assert described.settings["retention_ms"] == 7 * 24 * 3_600_000
    assert described.settings["segment_bytes"] == 1 << 20
    assert described.settings["durability"] == "fsync"
    summary = next(topic for topic in client.list_topics() if topic.name == "life")
    assert (summary.partitions, summary.messages) == (5, 0)
    client.delete_topic("life")
    assert "life" not in [topic.name for topic in client.list_topics()]
    with pytest.raises(TopicNotFoundError, match="life"):
        client.delete_topic("life")


def test_a_deleted_topic_comes_back_empty(client: goqueue.Client) -> None:
    """A topic of the same name has nothing of the old one."""
    for _ in range(3):
        client.create_topic("again", partitions=1)
        assert client.producer("again").send(b"x").result(60).offset == 0
        client.delete_topic("again")


def test_partitions_are_added(client: goqueue.Client) -> None:
    """What is there stays; new partitions take messages, and a group gets them."""
    client.create_topic("grows", partitions=2, dedup_window_ms="1h")
    with client.producer("grows") as producer:
        first = producer.send(b"a", key=b"k", dedup_id="one").result(60)
    with client.consumer("readers", ["grows"], start="latest") as consumer:
        consumer.poll(timeout=10)
        added = client.add_partitions("grows", 5)
        with client.producer("grows") as producer:
            again = producer.send(b"b", key=b"k", dedup_id="one").result(60)
            places = [producer.send(b"%d" % n, partition=n).result(60) for n in range(5)]
        got: set[bytes] = set()
        for _ in range(50):
            got |= {message.value for message in consumer.poll(timeout=1) if message.value}
            if len(got) >= 5:
                break

    assert (added.name, added.before, added.after) == ("grows", 2, 5)
    assert (again.partition, again.offset, again.is_duplicate) == (first.partition, 0, True)
    assert [place.partition for place in places] == list(range(5))
    assert {b"%d" % n for n in range(5)} <= got
    assert len(client.describe_topic("grows").partitions) == 5


def test_a_number_of_partitions_only_grows(client: goqueue.Client, topic: str) -> None:
    """Fewer would lose messages; topics of the broker's own keep their number."""
    now = len(client.describe_topic(topic).partitions)
    refused = (InvalidRequestError, InvalidNameError, TopicNotFoundError)
    for name, count in (
        (topic, now),
        (topic, now - 1),
        (topic, 10_001),
        ("__consumer_offsets", 99),
    ):
        with pytest.raises(refused):
            client.add_partitions(name, count)
    with pytest.raises(TopicNotFoundError):
        client.add_partitions("nothing", 9)
    with pytest.raises(InvalidRequestError, match="replica_assignments"):
        client.add_partitions(topic, now + 1, assignments={now: ["x"]})
    assert len(client.describe_topic(topic).partitions) == now


def test_settings_change_one_by_one(client: goqueue.Client, topic: str) -> None:
    """What is not named stays; what is wrong changes nothing, and all of it is listed."""
    client.configure_topic(topic, retention_bytes="1GiB")
    with pytest.raises(InvalidConfigError) as caught:
        client.configure_topic(topic, retention_ms="soon", colour="red", dedup_window_ms="1h")

    settings = client.configure_topic(topic, durability="interval:1s").settings
    assert "retention_ms" in str(caught.value)
    assert "colour" in str(caught.value)
    assert settings["retention_bytes"] == 1 << 30
    assert settings["durability"] == "interval:1s"
    assert settings["dedup_window_ms"] == 0


def test_what_may_not_be_a_topic_is_refused(client: goqueue.Client, topic: str) -> None:
    """Names, counts and repeats are refused with the error that names them."""
    with pytest.raises(TopicExistsError):
        client.create_topic(topic)
    with pytest.raises(InvalidNameError):
        client.create_topic("../escaped")
    for partitions in (0, -1, 10_001, 2**40):
        with pytest.raises(InvalidRequestError, match="partitions"):
            client.create_topic("counted", partitions=partitions)
    with pytest.raises(InvalidNameError):
        client.create_topic("n" * 300)


def test_a_name_too_large_for_a_request_is_refused_at_once(client: goqueue.Client) -> None:
    """A header beyond its limit never leaves the client, so the connection stays."""
    with pytest.raises(TooLargeError, match="header"):
        client.describe_topic("n" * 2_000_000)

    client.ping()


def test_topics_by_the_thousand_are_listed() -> None:
    """A list larger than the largest request header comes through all the same."""
    topics = [calls.TopicSummary(f"{'long-name-' * 20}{n:05}", 1, 2, 3) for n in range(8_000)]
    replies = {
        Operation.HELLO: calls.HelloReply(1, "fake", "node"),
        Operation.LIST_TOPICS: calls.TopicList(topics),
    }

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        packets = PacketReader()
        with connection:
            while data := connection.recv(1_000):
                for packet in packets.feed(data):
                    buffers = encode_packet(
                        operation=packet.operation,
                        kind=Kind.REPLY,
                        correlation=packet.correlation,
                        header=msgspec.msgpack.encode(replies[Operation(packet.operation)]),
                    )
                    connection.sendall(b"".join(buffers))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer, args=(listener,))
        server.start()
        with goqueue.connect(f"127.0.0.1:{listener.getsockname()[1]}") as client:
            listed = client.list_topics()
        server.join(60)

    assert len(msgspec.msgpack.encode(topics)) > REQUEST_HEADER_BYTES_MAX
    assert listed == topics


def test_offsets_are_asked_for_in_many_ways(client: goqueue.Client, topic: str) -> None:
    """Words, counts and offsets by partition resolve to an offset for each partition."""
    producer = client.producer(topic)
    for number in range(9):
        producer.send(b"%d" % number, partition=number % 2)
    producer.flush(60)

    assert client.offsets(topic) == {0: 5, 1: 4, 2: 0}
    assert client.offsets(topic, "earliest") == {0: 0, 1: 0, 2: 0}
    assert client.offsets(topic, -2) == {0: 3, 1: 2, 2: 0}
    assert client.offsets(topic, {1: 3}) == {0: 0, 1: 3, 2: 0}


def test_many_callers_share_one_connection(address: str, topic: str) -> None:
    """Hundreds of calls at once are answered, each with its own answer."""

    async def scenario() -> None:
        async with await goqueue.aio.connect(address) as client:
            asked = [
                client.describe_topic(topic if number % 2 else "nowhere") for number in range(400)
            ]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for number, answer in enumerate(answers):
                assert isinstance(answer, TopicNotFoundError) != bool(number % 2)

    asyncio.run(scenario())


def test_a_compacted_topic_is_read_without_a_word_about_what_went(client: goqueue.Client) -> None:
    """Messages, batches and followers pass over the holes; ``on_gap`` stays at ``raise``."""
    client.create_topic(
        "state", partitions=1, cleanup_policy="compact", min_dirty_ratio=0.9, segment_bytes="64KiB"
    )
    with client.producer("state") as producer:
        for number in range(3_000):
            producer.send(b"%d" % number, key=b"%d" % (number % 10))
        producer.send(b"bare")
        producer.flush()
        dry = client.compact_topic("state", dry_run=True)
        (part,) = client.compact_topic("state", [0])
        producer.send(None, key=b"3")
    offsets = [message.offset for message in client.read("state")]
    batches = list(client.read_batches("state", columns=["offset"]))
    follower = client.read("state", start={0: 5}, follow=True)

    assert dry[0].records_removed == part.records_removed == 2_990
    assert (part.records_before, part.records_after, part.error) == (3_001, 11, None)
    assert offsets == list(range(2_990, 3_002))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == offsets
    assert [next(follower).offset for _ in offsets] == offsets
    follower.close()
    assert client.describe_topic("state").settings["min_dirty_ratio"] == 0.9
    for start in (0, 17, 2_989, 2_995):
        found = [message.offset for message in client.read("state", start={0: start})]
        assert found == [offset for offset in offsets if offset >= start]


def test_the_asynchronous_client_compacts_too(address: str) -> None:
    """The twin has the same words."""

    async def main() -> list[calls.CompactedPart]:
        async with await goqueue.aio.connect(address) as client:
            await client.create_topic("twin", partitions=2, cleanup_policy="compact")
            return await client.compact_topic("twin", dry_run=True)

    parts = asyncio.run(main())

    assert [(part.partition, part.records_before) for part in parts] == [(0, 0), (1, 0)]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("cleanup_policy", "shrink", 'must be "delete", "compact" or "compact,delete"'),
        ("cleanup_policy", 1, 'must be "delete", "compact" or "compact,delete"'),
        ("min_dirty_ratio", 1.01, "must be a number from 0 to 1"),
        ("min_dirty_ratio", "half", "must be a number from 0 to 1"),
        ("min_dirty_ratio", float("nan"), "must be a number from 0 to 1"),
        ("tombstone_retention_ms", "-1d", "tombstone_retention_ms"),
        ("retention_ms", 0.5, "expected a whole number"),
    ],
)
def test_settings_of_compaction_that_make_no_sense(
    client: goqueue.Client, name: str, value: str | float, problem: str
) -> None:
    """Each is refused with what it should be."""
    with pytest.raises(InvalidConfigError, match=problem):
        client.create_topic("never", **{name: value})  # type: ignore[arg-type]


def test_settings_of_compaction_as_people_write_them(client: goqueue.Client) -> None:
    """Both policies in any order, a ratio as text, a duration with its unit."""
    made = client.create_topic(
        "both",
        cleanup_policy="delete, compact",
        min_dirty_ratio=".25",
        tombstone_retention_ms="2h",
    )

    assert made.settings["cleanup_policy"] == "compact,delete"
    assert made.settings["min_dirty_ratio"] == 0.25
    assert made.settings["tombstone_retention_ms"] == 7_200_000
