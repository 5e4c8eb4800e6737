"""What is gone or damaged: a reader is told, and goes on only if it said so before."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import DataLossError, InvalidRequestError
from goqueue.client.protocol import fetching as reader
from goqueue.testing.disk import MemoryDisk
from tests.transport.native.running import Running

TOPIC = "orders"
COUNT = 400


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def client(disk: MemoryDisk) -> Iterator[goqueue.Client]:
    """A client of a broker with one partition of many small segments."""
    with (
        Running(disk, maintenance_interval_ms=20) as server,
        goqueue.connect(server.address, timeout=60) as connected,
    ):
        connected.create_topic(TOPIC, partitions=1, segment_bytes=4_096, retention_ms=0)
        producer = connected.producer(TOPIC, linger_ms=0)
        for number in range(COUNT):
            producer.send(b"%d" % number + bytes(90)).result(60)
        yield connected


def segments(disk: MemoryDisk) -> list[str]:
    directory = f"logs/{TOPIC}/0"
    names = disk.reopen().list_directory(directory)
    return [f"{directory}/{name}" for name in names if name.endswith(".log")]


@pytest.fixture
def lost(disk: MemoryDisk, client: goqueue.Client) -> int:
    """Damage one message in the middle of a sealed segment; return its offset."""
    del client
    path = segments(disk)[3]
    file = disk.reopen().open(path)
    raw = file.read(0, file.size())  # type: ignore[arg-type]
    disk.flip_bits(path, [raw.index(b"GQ", 1_000) + 60])
    base = int(path.rpartition("/")[2].partition(".")[0])
    return base + raw[: raw.index(b"GQ", 1_000)].count(b"GQ\x01")


def test_a_damaged_message_is_never_read(client: goqueue.Client, lost: int) -> None:
    """P10: the reader hears which offsets it does not get, after all that come before."""
    seen: list[int] = []
    with pytest.raises(DataLossError, match=f"offsets {lost} to {lost} cannot be read") as caught:
        seen.extend(message.offset for message in client.read(TOPIC))

    assert "on_gap='skip'" in str(caught.value)
    assert all(offset < lost for offset in seen)


def test_a_reader_may_go_on_behind_the_damage(client: goqueue.Client, lost: int) -> None:
    """With on_gap='skip' everything else comes, in order."""
    offsets = [message.offset for message in client.read(TOPIC, on_gap="skip")]

    assert offsets == [number for number in range(COUNT) if number != lost]


def test_batches_and_loops_hear_of_it_too(client: goqueue.Client, lost: int) -> None:
    """All four ways to read treat a gap alike."""
    with pytest.raises(DataLossError):
        list(client.read_batches(TOPIC))
    rows = sum(batch.num_rows for batch in client.read_batches(TOPIC, on_gap="skip"))
    address = repr(client).partition("NativeLink ")[2].rstrip(">")

    async def scenario() -> int:
        async with await goqueue.aio.connect(address) as other:
            with pytest.raises(DataLossError, match=str(lost)):
                [message async for message in other.read(TOPIC)]
            return len([m async for m in other.read(TOPIC, on_gap="skip")])

    assert rows == COUNT - 1
    assert asyncio.run(scenario()) == COUNT - 1


def test_reading_around_the_damage_needs_no_permission(client: goqueue.Client, lost: int) -> None:
    """Who does not ask for the lost offset does not hear of it."""
    before = [message.offset for message in client.read(TOPIC, end=lost)]
    behind = [message.offset for message in client.read(TOPIC, start=lost + 1)]

    assert [*before, *behind] == [number for number in range(COUNT) if number != lost]


def expire(client: goqueue.Client) -> int:
    """Let retention delete most of the topic; return the earliest offset that is left."""
    client.configure_topic(TOPIC, retention_bytes=8_000)
    deadline = time.monotonic() + 60
    pause = threading.Event()
    while (start := client.offsets(TOPIC, "earliest")[0]) < COUNT // 2:
        assert time.monotonic() < deadline
        pause.wait(0.02)
    return start


def test_offsets_deleted_by_retention_are_a_gap(client: goqueue.Client) -> None:
    """P7: a reader that asks for what is gone is told, and may go on with what is left."""
    start = expire(client)
    with pytest.raises(DataLossError, match=f"offsets 0 to {start - 1} were deleted by retention"):
        list(client.read(TOPIC, start=0))

    skipped = [message.offset for message in client.read(TOPIC, start=0, on_gap="skip")]
    assert skipped == list(range(start, COUNT))
    assert [message.offset for message in client.read(TOPIC)] == skipped


def test_retention_that_overtakes_a_reader_is_told(
    monkeypatch: pytest.MonkeyPatch, client: goqueue.Client
) -> None:
    """A reader too slow for retention hears of it instead of missing messages quietly."""
    monkeypatch.setattr(reader, "FETCH_BYTES", 2_000)
    messages = client.read(TOPIC, follow=True)
    seen = [next(messages).offset]
    expire(client)

    with pytest.raises(DataLossError, match="were deleted by retention"):
        seen.extend(message.offset for message in messages)
    assert seen == list(range(len(seen)))
    assert len(seen) < COUNT // 2


def test_contradictions_are_refused(client: goqueue.Client) -> None:
    """A follower has no end, and a gap is raised or skipped."""
    with pytest.raises(InvalidRequestError, match="follows has no end"):
        next(client.read(TOPIC, follow=True, end=5))
    with pytest.raises(InvalidRequestError, match="on_gap"):
        next(client.read(TOPIC, on_gap="ignore"))


@pytest.mark.parametrize("end", [0, {0: 0}])
def test_an_end_at_zero_is_an_end(client: goqueue.Client, end: int | dict[int, int]) -> None:
    """Offset 0 is a place like any other."""
    assert list(client.read(TOPIC, end=end)) == []


def test_offsets_by_partition_may_count_from_the_end(client: goqueue.Client) -> None:
    """What an offset may be, an offset by partition may be, too."""
    offsets = [message.offset for message in client.read(TOPIC, start={0: -3})]

    assert offsets == [COUNT - 3, COUNT - 2, COUNT - 1]


def test_a_reader_of_rows_and_batches_gets_one_schema(tmp_path: Path) -> None:
    """Single messages and batches, with and without headers, come in record batches alike."""
    with goqueue.open(tmp_path / "data") as local:
        local.create_topic(TOPIC, partitions=1)
        producer = local.producer(TOPIC)
        producer.send(b"alone", headers={"a": "1"}, priority="low").result(60)
        for number in range(10):
            producer.send(b"%d" % number, key=b"k" if number % 2 else None)
        producer.flush(60)
        for number in range(10):
            producer.send(None, key=b"k", headers={"b": b"2"}, priority=number % 5)
        producer.flush(60)
        batches = list(local.read_batches(TOPIC))
        columns = list(local.read_batches(TOPIC, columns=["deliver_at", "priority", "topic"]))

    assert len({batch.schema for batch in batches}) == 1
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(21))
    assert rows[0]["headers"] == [("a", b"1")]
    assert [row["priority"] for row in rows] == [3, *[2] * 10, *[n % 5 for n in range(10)]]
    assert [row["value"] for row in rows[11:]] == [None] * 10
    assert {tuple(batch.schema.names) for batch in columns} == {("deliver_at", "priority", "topic")}
