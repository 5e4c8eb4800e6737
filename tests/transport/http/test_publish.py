"""Publishing over HTTP, as the contract has it."""

import base64
from typing import Any

import mmh3
import pytest

from goqueue.base.limits import (
    DEDUP_ID_BYTES_MAX,
    HTTP_MESSAGES_MAX,
    KEY_BYTES_MAX,
)
from goqueue.testing.clock import FakeClock
from tests.transport.http.running import Running, error_of

PRIORITY_TEXT = "invalid priority: must be one of critical, high, normal, low, background"


def refused(result: dict[str, Any]) -> tuple[str, str]:
    """Return text and code of a refused message, having checked that it has no place."""
    assert (result["partition"], result["offset"]) == (-1, -1)
    return result["error"], result["code"]


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_results_keep_the_order_of_the_messages(server: Running, prefix: str) -> None:
    """One result per message, in the same order, and the reply says what an ack means."""
    server.create(num_partitions=2)
    messages = [{"value": str(number), "partition": number % 2} for number in range(6)]
    reply = server.post(f"{prefix}/topics/orders/messages", {"messages": messages})

    assert reply.status_code == 200
    assert reply.json() == {
        "results": [{"partition": row % 2, "offset": row // 2} for row in range(6)],
        "durability": "fsync",
    }


def test_an_ack_says_what_it_means(server: Running) -> None:
    """A topic that does not wait for the disk says so."""
    server.create(config={"durability": "os"})
    reply = server.post("/topics/orders/messages", {"messages": [{"value": "a"}]})

    assert reply.json()["durability"] == "os"


@pytest.mark.parametrize("extra", [{}, {"headers": {"a": "b"}}], ids=["plain", "full"])
def test_a_key_decides_the_partition(server: Running, extra: dict[str, object]) -> None:
    """Murmur3 of the key, seed 0, modulo the partitions (trap G6), however the message looks."""
    server.create(num_partitions=7)
    keys = [f"user-{number}" for number in range(50)]
    results = server.publish(*({"key": key, "value": "v", **extra} for key in keys))

    expected = [mmh3.hash(key, 0, signed=False) % 7 for key in keys]
    assert [result["partition"] for result in results] == expected


@pytest.mark.parametrize("extra", [{}, {"headers": {"a": "b"}}], ids=["plain", "full"])
@pytest.mark.parametrize("key", [{}, {"key": None}, {"key": ""}], ids=["absent", "null", "empty"])
def test_messages_without_a_key_take_turns(
    server: Running, key: dict[str, object], extra: dict[str, object]
) -> None:
    """No key, null or an empty one: the partitions take turns."""
    server.create(num_partitions=3)
    results = server.publish(*({"value": "v", **key, **extra} for _ in range(6)))

    assert [result["partition"] for result in results] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 100, 1000])
def test_every_message_can_be_read_where_its_result_says(server: Running, count: int) -> None:
    """Whether stored as rows or as a batch, each message is at its partition and offset."""
    server.create()
    sent = [{"key": f"k{row % 9}", "value": f"value {row} ü"} for row in range(count)]
    results = server.publish(*sent)

    pages = [server.read(partition, limit=1000)["messages"] for partition in range(3)]
    for message, result in zip(sent, results, strict=True):
        stored = pages[result["partition"]][result["offset"]]
        assert (stored["key"], stored["value"]) == (message["key"], message["value"])
    assert sum(map(len, pages)) == count


def test_every_field_comes_back(server: Running, clock: FakeClock) -> None:
    """Key, value, priority, headers and time are stored as sent."""
    server.create(num_partitions=1)
    (result,) = server.publish(
        {
            "key": "k",
            "value": "v",
            "priority": "High",
            "headers": {"trace": "1", "leer": "", "none": None},
            "timestamp": "2023-11-14T22:13:20.123456789+01:00",
        }
    )
    plain = server.publish({"value": "now", "partition": 0})
    messages = server.read()["messages"]

    assert result == {"partition": 0, "offset": 0, "priority": "high"}
    assert plain == [{"partition": 0, "offset": 1}]
    assert messages[0] == {
        "offset": 0,
        "timestamp": "2023-11-14T21:13:20.123456000Z",
        "key": "k",
        "value": "v",
        "priority": "high",
        "headers": {"trace": "1", "leer": ""},
    }
    assert messages[1]["timestamp"] == "2023-11-14T22:13:20.000000000Z"
    assert messages[1]["priority"] == "normal"
    assert clock.now_ms() == 1_700_000_000_000


@pytest.mark.parametrize("payload", [b"", b"\x00\xff\xfe", bytes(range(256)) * 20, "ü".encode()])
def test_any_bytes_travel_as_base64(server: Running, payload: bytes) -> None:
    """Value, key and headers each carry any bytes and come back the same, marked as base64."""
    text = base64.b64encode(payload).decode()
    server.create(num_partitions=1)
    server.publish(
        {"value": text, "encoding": "base64"},
        {"value": "v", "key": text, "key_encoding": "base64"},
        {"value": "v", "headers": {"h": text}, "headers_encoding": "base64"},
        {"value": "text", "encoding": "text"},
    )
    encoded = server.read(encoding="base64")["messages"]
    first, second, third, fourth = server.read()["messages"]

    def original(value: str, encoding: str | None) -> bytes:
        return base64.b64decode(value) if encoding == "base64" else value.encode()

    assert base64.b64decode(encoded[0]["value"]) == payload
    assert all(message["encoding"] == "base64" for message in encoded)
    assert original(first["value"], first.get("encoding")) == payload
    assert original(second.get("key", ""), second.get("key_encoding")) == payload
    assert original(third["headers"]["h"], third.get("headers_encoding")) == payload
    assert fourth["value"] == "text"


@pytest.mark.parametrize(
    ("message", "text", "code"),
    [
        ({"priority": "urgent"}, PRIORITY_TEXT, "invalid_request"),
        ({"priority": ""}, PRIORITY_TEXT, "invalid_request"),
        (
            {"partition": 9},
            "invalid partition 9 (topic has 1 partitions)",
            "partition_not_found",
        ),
        (
            {"partition": -1},
            "invalid partition -1 (topic has 1 partitions)",
            "partition_not_found",
        ),
        (
            {"delay": "900000h"},
            "delay 900000h0m0s exceeds maximum 876000h0m0s",
            "invalid_request",
        ),
        ({"delay": "soon"}, "invalid delay format: 'soon' is not a duration", "invalid_request"),
        ({"deliverAt": "tomorrow"}, "invalid deliverAt format: 'tomorrow'", "invalid_request"),
        ({"delay": "5s", "delay_id": "d" * 257}, "delay_id: 257 bytes", "too_large"),
        ({"value": "a", "encoding": "base64"}, "value: invalid base64", "invalid_request"),
        ({"value": "YQ", "encoding": "base64"}, "value: invalid base64", "invalid_request"),
        ({"value": "Y Q==", "encoding": "base64"}, "value: invalid base64", "invalid_request"),
        ({"encoding": "hex"}, "encoding of value: must be", "invalid_request"),
        ({"key": "k", "key_encoding": "hex"}, "encoding of key: must be", "invalid_request"),
        ({"headers": {"__producer": "x"}}, "headers: names beginning with '__'", "invalid_request"),
        ({"headers": {"h": "x" * 70_000}}, "headers: ", "too_large"),
        ({"headers": {str(i): "" for i in range(1001)}}, "headers: 1001 headers", "too_large"),
        ({"key": "k" * (KEY_BYTES_MAX + 1)}, "key: 65536 bytes; the limit is 65535", "too_large"),
        ({"dedup_id": "d" * (DEDUP_ID_BYTES_MAX + 1)}, "dedup_id: 257 bytes", "too_large"),
        ({"timestamp": "yesterday"}, "invalid timestamp format: ", "invalid_request"),
        ({"timestamp": "1969-12-31T23:59:59Z"}, "timestamp: lies before 1970", "invalid_request"),
        ({"timestamp": "2023-11-15T22:13:21Z"}, "timestamp: lies before 1970", "invalid_request"),
    ],
)
def test_a_refused_message_leaves_the_others_alone(
    server: Running, message: dict[str, object], text: str, code: str
) -> None:
    """Each message stands for itself: HTTP 200, its own error in its place, the others stored."""
    server.create(num_partitions=1)
    first, bad, last = server.publish({"value": "a"}, {"value": "bad", **message}, {"value": "z"})

    error, bad_code = refused(bad)
    assert error.startswith(text)
    assert bad_code == code
    assert (first["offset"], last["offset"]) == (0, 1)
    assert [stored["value"] for stored in server.read()["messages"]] == ["a", "z"]
    series = f'goqueue_broker_messages_failed_total{{error_type="{code}",topic="orders"}}'
    assert server.metric(series) == 1


def test_sizes_at_their_limit_are_taken(server: Running) -> None:
    """The largest key, dedup id and time there may be are stored and read back."""
    server.create(num_partitions=1)
    key, dedup_id = "k" * KEY_BYTES_MAX, "d" * DEDUP_ID_BYTES_MAX
    results = server.publish(
        {"value": "plain", "key": key},
        {"value": "", "key": key, "dedup_id": dedup_id, "timestamp": "2023-11-15T22:13:20Z"},
    )

    assert results == [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}]
    assert [message["key"] for message in server.read()["messages"]] == [key, key]


def test_a_batch_of_plain_messages_with_one_key_too_long_fails_for_that_one(
    server: Running,
) -> None:
    """The short way for plain messages knows the limits too."""
    server.create(num_partitions=1)
    good, bad = server.publish({"value": "a"}, {"value": "b", "key": "k" * (KEY_BYTES_MAX + 1)})

    assert good["offset"] == 0
    assert refused(bad)[1] == "too_large"


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": None}])
def test_a_publish_needs_a_message(server: Running, body: object) -> None:
    """Without any message the request is refused."""
    server.create()

    reply = server.post("/topics/orders/messages", body)
    assert error_of(reply) == (400, "at least one message required")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"messages": "x"}, "messages: expected array, got str"),
        ({"messages": [5]}, "messages[0]: expected object, got int"),
        ({"messages": [{"value": "a"}, {}]}, "messages[1].value is required"),
        ({"messages": [{"value": None}]}, "messages[0].value is required"),
        ({"messages": [{"value": 5}]}, "messages[0].value: expected str, got int"),
        (
            {"messages": [{"value": "a", "partition": "1"}]},
            "messages[0].partition: expected int, got str",
        ),
        (
            {"messages": [{"value": "a", "partition": 10**30}]},
            "messages[0].partition: expected int <= ",
        ),
        (
            {"messages": [{"value": "a", "headers": {"h": 5}}]},
            "messages[0].headers[...]: expected str, got int",
        ),
        (
            {"messages": [{"value": "a", "headers": ["h"]}]},
            "messages[0].headers: expected object, got array",
        ),
    ],
)
def test_a_wrong_type_refuses_the_request(server: Running, body: object, text: str) -> None:
    """JSON of the wrong shape answers 400, names the field and stores nothing."""
    server.create()
    status, error = error_of(server.post("/topics/orders/messages", body))

    assert status == 400
    assert error.startswith(text)
    assert server.get("/topics/orders").json()["total_messages"] == 0


@pytest.mark.parametrize("extra", [{}, {"priority": "low"}], ids=["plain", "full"])
def test_the_number_of_messages_has_a_limit(server: Running, extra: dict[str, str]) -> None:
    """As many messages as the limit are taken, one more answers 413 and stores nothing."""
    server.create(num_partitions=1)
    many = [{"value": "", **extra}] * HTTP_MESSAGES_MAX
    taken = server.post("/topics/orders/messages", {"messages": many})
    over = server.post("/topics/orders/messages", {"messages": [*many, {"value": ""}]})

    assert len(taken.json()["results"]) == HTTP_MESSAGES_MAX
    assert error_of(over) == (
        413,
        f"messages: {HTTP_MESSAGES_MAX + 1} messages; the limit is {HTTP_MESSAGES_MAX}",
    )
    assert server.get("/topics/orders").json()["total_messages"] == HTTP_MESSAGES_MAX


def test_many_large_messages_find_their_way(server: Running) -> None:
    """Values that together exceed what one batch holds are still stored in order."""
    server.create(num_partitions=1)
    values = [str(number) * 1_400_000 for number in range(9)]
    results = server.publish(*({"value": value} for value in values))

    assert [result["offset"] for result in results] == list(range(9))
    for offset, value in enumerate(values):
        assert server.read(offset=offset, limit=1)["messages"][0]["value"] == value


def test_a_repeat_returns_the_original(server: Running) -> None:
    """Within the topic's window a dedup id names one message, whatever partition is asked for."""
    server.create(config={"dedup_window_ms": "10s"})
    first = server.publish({"value": "a", "dedup_id": "x", "partition": 1})
    again = server.publish({"value": "b", "dedup_id": "y"}, {"value": "a", "dedup_id": "x"})

    assert again[1] == first[0] == {"partition": 1, "offset": 0}
    assert server.get("/topics/orders").json()["total_messages"] == 2


def test_a_forwarded_message_goes_where_it_is_told(server: Running) -> None:
    """Another node passes on a message: base64, an explicit partition, one place as the reply."""
    server.create(num_partitions=2)
    body = {"key": "aw==", "value": "AP8=", "partition": 1}
    reply = server.post("/topics/orders/messages/forward", body)
    bare = server.post("/topics/orders/messages/forward", {"value": "", "partition": 0})

    assert reply.json() == {"partition": 1, "offset": 0}
    assert bare.json() == {"partition": 0, "offset": 0}
    (message,) = server.read(1)["messages"]
    assert (message["key"], message["value"], message["encoding"]) == ("k", "AP8=", "base64")


@pytest.mark.parametrize(
    ("topic", "body", "status", "code"),
    [
        ("orders", {"value": "", "partition": 9}, 404, "partition_not_found"),
        ("none", {"value": "", "partition": 0}, 404, "topic_not_found"),
        ("orders", {"key": "YQ==" * 20_000, "value": "", "partition": 0}, 400, "invalid_request"),
        ("orders", {"key": "YWFh" * 30_000, "value": "", "partition": 0}, 413, "too_large"),
        ("orders", {"value": "not base64", "partition": 0}, 400, "invalid_request"),
        ("orders", {"partition": 0}, 400, "invalid_request"),
        ("orders", {"value": ""}, 400, "invalid_request"),
    ],
)
def test_a_forwarded_message_that_cannot_be_placed(
    server: Running, topic: str, body: dict[str, object], status: int, code: str
) -> None:
    """The refusal says why, in the shape of errors, and which partition was meant."""
    server.create(num_partitions=1)
    reply = server.post(f"/topics/{topic}/messages/forward", body)

    refusal = reply.json()
    assert reply.status_code == refusal["status"] == status
    assert set(refusal) == {"partition", "offset", "error", "status", "code"}
    assert (refusal["code"], refusal["offset"]) == (code, -1)
