"""Reading over HTTP: by offset and by time, across segments, gaps and the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue.base.limits import HTTP_READ_MESSAGES_MAX
from goqueue.core.record.message import Draft
from goqueue.runtime.log.expiry import expire
from goqueue.service.reading import PAGE_BYTES_MAX
from goqueue.wire.times import format_time_us
from tests.runtime.grants import PUBLISHING
from tests.transport.http.running import Running, error_of

MINUTE_MS = 60_000
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Ten messages in one partition, stored as rows and as batches. Only read."""
    with Running(tmp_path_factory.mktemp("full")) as server:
        server.create(num_partitions=1)
        for values in ("0", "12345", "6", "789"):
            server.publish(*({"value": value} for value in values))
        yield server


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("offset", range(10))
@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_a_read_returns_what_lies_behind_its_offset(
    full: Running, prefix: str, offset: int, limit: int
) -> None:
    """From any offset, the next messages in order, and where to go on."""
    path = f"{prefix}/topics/orders/partitions/0/messages"
    reply = full.get(path, offset=offset, limit=limit).json()

    expected = list(range(offset, min(offset + limit, 10)))
    assert [message["offset"] for message in reply["messages"]] == expected
    assert [message["value"] for message in reply["messages"]] == [str(n) for n in expected]
    assert reply["next_offset"] == expected[-1] + 1
    assert (reply["earliest"], reply["latest"]) == (0, 9)
    assert "gaps" not in reply


def test_walking_by_next_offset_meets_every_message_once(full: Running) -> None:
    """A reader that follows next_offset sees all, and stays at the end."""
    seen, offset = [], 0
    while messages := (page := full.read(offset=offset, limit=3))["messages"]:
        seen += [message["offset"] for message in messages]
        offset = page["next_offset"]

    assert seen == list(range(10))
    assert offset == page["next_offset"] == 10


@pytest.mark.parametrize("offset", [10, 11, 2**62])
def test_behind_the_end_there_is_nothing_yet(full: Running, offset: int) -> None:
    """An offset that is still to come answers no messages and the same offset again."""
    page = full.read(offset=offset)

    assert page == {"messages": [], "next_offset": offset, "earliest": 0, "latest": 9}


def test_the_defaults_are_the_beginning_and_a_hundred(server: Running) -> None:
    """Without parameters, or with empty ones, a read returns the first hundred messages."""
    server.create(num_partitions=1)
    server.publish(*[{"value": ""}] * 150)

    for query in ({}, {"offset": "", "limit": "", "encoding": ""}):
        assert len(server.read(0, **query)["messages"]) == 100


def test_a_limit_beyond_the_largest_is_clamped(server: Running) -> None:
    """Asking for more than a read may return is no error."""
    server.create(num_partitions=1)
    server.publish(*[{"value": ""}] * (HTTP_READ_MESSAGES_MAX + 1))
    page = server.read(limit=10**9)

    assert len(page["messages"]) == HTTP_READ_MESSAGES_MAX
    assert page["next_offset"] == HTTP_READ_MESSAGES_MAX


def test_a_page_of_large_messages_ends_early(server: Running) -> None:
    """A page is bounded in bytes too; a single message larger than that comes alone."""
    server.create(num_partitions=1)
    size = PAGE_BYTES_MAX // 8
    for _ in range(2):
        server.publish(*[{"value": "x" * size}] * 10)
    server.publish({"value": "y" * (PAGE_BYTES_MAX + 1)})
    first = server.read(limit=1000)
    last = server.read(offset=20, limit=1000)

    assert 1 <= len(first["messages"]) <= 9
    assert first["next_offset"] == len(first["messages"])
    assert len(last["messages"][0]["value"]) == PAGE_BYTES_MAX + 1


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("partitions/x/messages", 400, "invalid partition ID"),
        ("partitions/1_0/messages", 400, "invalid partition ID"),
        ("partitions/٣/messages", 400, "invalid partition ID"),
        ("partitions/99999999999999999999/messages", 400, "invalid partition ID"),
        ("partitions/1/messages", 404, "invalid partition 1 (topic has 1 partitions)"),
        ("partitions/-1/messages", 404, "invalid partition -1 (topic has 1 partitions)"),
        ("partitions/0/messages?offset=-1", 400, "invalid offset"),
        ("partitions/0/messages?offset=1.5", 400, "invalid offset"),
        ("partitions/0/messages?offset=99999999999999999999", 400, "invalid offset"),
        ("partitions/0/messages?limit=0", 400, "invalid limit"),
        ("partitions/0/messages?limit=ten", 400, "invalid limit"),
        ("partitions/0/messages?encoding=hex", 400, "encoding: must be"),
        ("partitions/0/messages?timestamp=noon", 400, "invalid timestamp: 'noon' is not a time"),
        ("partitions/0/messages?timestamp=1&offset=1", 400, "give offset or timestamp, not both"),
        ("offsets", 400, "timestamp is required"),
        ("offsets?timestamp=2026-13-01T00:00:00Z", 400, "invalid timestamp: "),
        ("offsets?timestamp=-5", 400, "invalid timestamp: "),
    ],
)
def test_a_bad_parameter_is_named(full: Running, path: str, status: int, text: str) -> None:
    """What cannot be a number, a time or a partition answers 400 or 404 in the contract's words."""
    found, error = error_of(full.get(f"/topics/orders/{path}"))

    assert found == status
    assert error.startswith(text)


def fill_hours(server: Running) -> None:
    """One message a minute, 200 of them, in twenty segments."""
    server.create(num_partitions=2, config={"segment_bytes": 4096, "retention_ms": 0})
    for start in range(0, 200, 10):
        server.publish(
            *(
                {"value": "v" * 300, "partition": 0, "timestamp": format_time_us(minute_us(minute))}
                for minute in range(start, start + 10)
            )
        )


def minute_us(minute: int) -> int:
    return (START_MS + minute * MINUTE_MS) * 1_000


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Many segments. Only read."""
    with Running(tmp_path_factory.mktemp("hours")) as server:
        fill_hours(server)
        yield server


@pytest.mark.parametrize("minute", [0, 1, 62, 150, 199])
def test_a_time_is_found_in_any_segment(hours: Running, minute: int) -> None:
    """A lookup by time is exact over many segments (trap B1)."""
    at_ms = START_MS + minute * MINUTE_MS
    segments = hours.inside(lambda: len(hours.broker.topic("orders").partitions[0].log.segments))

    def offsets(timestamp: str | int) -> object:
        return hours.get("/topics/orders/offsets", timestamp=timestamp).json()["offsets"]

    assert segments == 20
    assert offsets(at_ms) == {"0": minute, "1": 0}
    assert offsets(at_ms - 1) == {"0": minute, "1": 0}
    assert offsets(at_ms + 1) == {"0": minute + 1, "1": 0}
    assert hours.read(timestamp=at_ms, limit=1)["messages"][0]["offset"] == minute


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        ("2023-11-14T22:13:20Z", 0),
        ("2023-11-14T22:14:20.000000000Z", 1),
        ("2023-11-14T23:14:20+01:00", 1),
        ("2023-11-14T19:14:20-03:00", 1),
        ("1969-01-01T00:00:00Z", 0),
        ("2030-01-01T00:00:00Z", 200),
        ("earliest", 0),
        ("latest", 200),
        (0, 0),
    ],
)
def test_a_moment_can_be_written_in_many_ways(
    hours: Running, timestamp: str | int, offset: int
) -> None:
    """RFC 3339 in any zone, milliseconds, earliest and latest all name a place to begin."""
    reply = hours.get("/topics/orders/offsets", timestamp=timestamp).json()

    assert reply["topic"] == "orders"
    assert reply["offsets"] == {"0": offset, "1": 0}


def test_a_plus_in_an_address_is_forgiven(hours: Running) -> None:
    """An unescaped plus arrives as a space; the zone is understood all the same."""
    reply = hours.client.get("/topics/orders/offsets?timestamp=2023-11-14T23:14:20+01:00")

    assert reply.json()["offsets"]["0"] == 1


def test_what_retention_deleted_is_reported(server: Running) -> None:
    """Reading from a deleted offset begins at the earliest left, and says what is missing."""
    fill_hours(server)
    server.client.patch("/topics/orders/config", json={"retention_ms": 100 * MINUTE_MS})
    partition = server.inside(lambda: server.broker.topic("orders").partitions[0])
    deleted = server.inside(lambda: expire(partition, START_MS + 200 * MINUTE_MS))
    page = server.read(offset=3, limit=2)

    assert deleted == 10
    assert page["earliest"] == 100
    assert [message["offset"] for message in page["messages"]] == [100, 101]
    assert page["gaps"] == [{"start_offset": 3, "end_offset": 100, "reason": "expired"}]
    assert server.read()["gaps"][0]["start_offset"] == 0
    assert "gaps" not in server.read(offset=100)
    shown = server.get("/topics/orders").json()
    assert shown["partition_offsets"]["0"] == {"earliest": 100, "latest": 199}
    assert shown["total_messages"] == 100


def test_a_bad_frame_is_left_out_and_reported(server: Running) -> None:
    """Messages whose bytes went bad on disk are never served; the reader is told which."""
    server.create(num_partitions=1)
    for number in range(3):
        server.publish(*({"value": f"batch {number} row {row}"} for row in range(5)))
    (log,) = Path(server.data_dir, "logs/orders/0").glob("*.log")
    content = bytearray(log.read_bytes())
    content[content.index(b"batch 1 row 2")] ^= 1
    log.write_bytes(content)
    page = server.read(limit=100)

    assert [message["offset"] for message in page["messages"]] == [*range(5), *range(10, 15)]
    assert page["gaps"] == [{"start_offset": 5, "end_offset": 10, "reason": "unreadable"}]
    assert page["next_offset"] == 15


def test_a_tombstone_has_no_value(server: Running) -> None:
    """A message that marks its key as deleted comes with a null value, in both encodings."""
    server.create(num_partitions=1)
    topic = server.inside(lambda: server.broker.topic("orders"))
    draft = Draft(key=b"k", value=None, timestamp_us=1)
    server.await_inside(topic.publish_drafts(PUBLISHING, [(draft, 0)]))

    for query in ({}, {"encoding": "base64"}):
        (message,) = server.read(0, **query)["messages"]
        assert message["value"] is None
        assert "encoding" not in message
