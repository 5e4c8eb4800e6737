"""Reading through the SDK, against a real broker."""

import threading
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import goqueue
from goqueue.base.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    TopicNotFoundError,
)
from goqueue.client.protocol.positions import Position

START = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def hours(client: goqueue.Client, topic: str) -> str:
    """A topic with one message an hour in partition 1, over two batches and a few rows."""
    producer = client.producer(topic)
    for number in range(100):
        when = START + timedelta(hours=number)
        future = producer.send(b"%d" % number, partition=1, timestamp=when)
        if number in (40, 80, 81, 82):
            future.result(60)
    producer.flush(60)
    return topic


def numbers(client: goqueue.Client, topic: str, **options: object) -> list[int]:
    return [int(m.value or b"") for m in client.read(topic, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", 0),
        ("latest", 100),
        (17, 17),
        (-10, 90),
        (START + timedelta(hours=41, minutes=30), 42),
        (START - timedelta(days=1), 0),
        (START + timedelta(days=30), 100),
        ({1: 55}, 55),
    ],
)
def test_a_reader_begins_where_it_is_told(
    client: goqueue.Client, hours: str, start: Position, expected: int
) -> None:
    """A word, an offset, a count from the end, a time, or offsets by partition."""
    assert numbers(client, hours, start=start, partitions=[1]) == list(range(expected, 100))


@pytest.mark.parametrize("end", [60, {1: 60}, START + timedelta(hours=60)])
def test_a_reader_ends_where_it_is_told(client: goqueue.Client, hours: str, end: Position) -> None:
    """The end is not read itself, also in the middle of a batch."""
    assert numbers(client, hours, start=35, end=end, partitions=[1]) == list(range(35, 60))


def test_an_end_for_some_partitions_leaves_the_others_whole(
    client: goqueue.Client, topic: str
) -> None:
    """A partition that is not named ends at the latest."""
    producer = client.producer(topic)
    for number in range(20):
        producer.send(b"%d" % number, partition=number % 2)
    producer.flush(60)

    found = [(m.partition, m.offset) for m in client.read(topic, end={0: 3})]
    assert sorted(found) == [(0, n) for n in range(3)] + [(1, n) for n in range(10)]


def test_an_offset_never_written_is_an_error(client: goqueue.Client, hours: str) -> None:
    """A reader that begins behind the end hears of it instead of finding nothing."""
    with pytest.raises(OffsetOutOfRangeError, match="101"):
        numbers(client, hours, start=101, partitions=[1])


def test_what_does_not_exist_is_said(client: goqueue.Client, hours: str) -> None:
    """Unknown topics, partitions, positions and columns are errors that name them."""
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        numbers(client, "nowhere")
    with pytest.raises(PartitionNotFoundError, match="7"):
        numbers(client, hours, partitions=[7])
    with pytest.raises(InvalidRequestError, match="'yesterday'"):
        numbers(client, hours, start="yesterday")
    with pytest.raises(InvalidRequestError, match="colour"):
        list(client.read_batches(hours, columns=["colour"]))


def test_a_follower_sees_what_comes(client: goqueue.Client, topic: str) -> None:
    """With follow a reader waits for new messages and gets them in order."""
    producer = client.producer(topic, linger_ms=0)
    messages = client.read(topic, follow=True, partitions=[0])
    sender = threading.Thread(
        target=lambda: [producer.send(b"%d" % n, partition=0).result(60) for n in range(50)]
    )
    sender.start()
    values = [next(messages).value for _ in range(50)]
    sender.join()

    assert values == [b"%d" % number for number in range(50)]


def test_batches_carry_their_place(client: goqueue.Client, hours: str) -> None:
    """Arrow batches have topic, partition and offset columns and one fixed schema."""
    table = pa.Table.from_batches(client.read_batches(hours))

    assert table.column_names == [
        "topic", "partition", "offset", "timestamp", "key", "value", "headers", "priority",
    ]  # fmt: skip
    assert table["offset"].to_pylist() == list(range(100))
    assert table["value"].to_pylist() == [b"%d" % n for n in range(100)]
    assert table["timestamp"][41].as_py() == START + timedelta(hours=41)
    assert set(table["topic"].to_pylist()) == {hours}


def test_batches_are_aligned_for_computing(
    client: goqueue.Client, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Arrow computes on what was read without complaint."""
    producer = client.producer(topic)
    for number in range(1_000):
        producer.send(b"%d" % number, key=b"k%d" % (number % 7))
    producer.flush(60)
    table = pa.Table.from_batches(client.read_batches(topic))
    grouped = table.group_by("key").aggregate([("offset", "max"), ("timestamp", "min")])

    assert grouped.num_rows == 7
    assert capfd.readouterr().err == ""


def test_columns_can_be_picked(client: goqueue.Client, hours: str) -> None:
    """Only the columns asked for come back, in the order they were asked for."""
    batches = list(client.read_batches(hours, columns=["offset", "value"], start=95))

    assert {tuple(batch.schema.names) for batch in batches} == {("offset", "value")}
    assert sum(batch.num_rows for batch in batches) == 5


def test_offsets_by_time(client: goqueue.Client, hours: str) -> None:
    """B1: the first offset at or after a time, for each partition."""
    assert client.offsets(hours, START + timedelta(hours=70, seconds=1)) == {0: 0, 1: 71, 2: 0}
