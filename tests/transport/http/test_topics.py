"""Topics over HTTP, as the contract has them."""

from pathlib import Path

import pytest

from tests.transport.http.running import Running, error_of

HOUR_MS = 3_600_000


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_a_topic_lives_and_dies(server: Running, prefix: str) -> None:
    """A topic can be made, listed, shown and deleted, at both addresses of the API."""
    created = server.post(f"{prefix}/topics", {"name": "orders", "num_partitions": 2})
    listed = server.get(f"{prefix}/topics")
    shown = server.get(f"{prefix}/topics/orders")
    deleted = server.client.delete(f"{prefix}/topics/orders")

    assert created.status_code == 201
    assert created.json() == {"name": "orders", "partitions": 2, "created": True}
    assert listed.json() == {"topics": ["orders"]}
    assert shown.json() == {
        "name": "orders",
        "partitions": 2,
        "total_messages": 0,
        "total_size_bytes": 0,
        "partition_offsets": {
            "0": {"earliest": 0, "latest": -1},
            "1": {"earliest": 0, "latest": -1},
        },
        "config": {
            "retention_ms": 168 * HOUR_MS,
            "retention_bytes": 0,
            "segment_bytes": 64 * 1024 * 1024,
            "durability": "fsync",
            "dedup_window_ms": 0,
            "message_ttl_ms": 0,
            "cleanup_policy": "delete",
            "min_dirty_ratio": 0.5,
            "tombstone_retention_ms": 24 * HOUR_MS,
            "schema_validation": "off",
            "schema_subject": "topic",
            "trace_sampling": "broker",
        },
    }
    assert deleted.json() == {"deleted": True, "name": "orders"}
    assert server.get(f"{prefix}/topics").json() == {"topics": []}


@pytest.mark.parametrize("number", [0, -1, -(2**63), None])
def test_a_number_that_says_nothing_means_the_default(server: Running, number: int | None) -> None:
    """Zero, less or null asks for three partitions and a week of retention."""
    server.create(num_partitions=number, retention_hours=number)
    shown = server.get("/topics/orders").json()

    assert shown["partitions"] == 3
    assert shown["config"]["retention_ms"] == 168 * HOUR_MS


def test_settings_are_taken_at_creation(server: Running) -> None:
    """``config`` takes settings as people write them and beats ``retention_hours``."""
    config = {"retention_ms": "2h", "segment_bytes": "1MiB", "durability": "os", "x": None}
    server.create(retention_hours=5, config=config)
    server.create("other", retention_hours=5)

    shown = server.get("/topics/orders").json()["config"]
    assert (shown["retention_ms"], shown["segment_bytes"]) == (2 * HOUR_MS, 1024 * 1024)
    assert shown["durability"] == "os"
    assert server.get("/topics/other").json()["config"]["retention_ms"] == 5 * HOUR_MS


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_settings_can_be_changed(server: Running, method: str) -> None:
    """A change touches only the settings it names, and is there on the next look."""
    server.create()
    changed = server.client.request(
        method, "/topics/orders/config", json={"retention_bytes": "10GB", "dedup_window_ms": "30s"}
    )

    assert changed.status_code == 200
    assert changed.json()["name"] == "orders"
    assert changed.json()["config"]["retention_bytes"] == 10**10
    assert changed.json()["config"]["retention_ms"] == 168 * HOUR_MS
    assert server.get("/topics/orders/config").json() == changed.json()
    assert server.get("/topics/orders").json()["config"] == changed.json()["config"]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"retention": 5}, "retention: no such setting"),
        ({"retention_ms": "soon"}, "retention_ms: 'soon' is not a duration"),
        ({"retention_ms": -1}, "retention_ms: -1 is not between"),
        ({"retention_ms": [1]}, "retention_ms: expected a whole number, got list"),
        ({"durability": "maybe"}, "durability: must be"),
        ({"durability": {"a": 1}, "segment_bytes": True}, "segment_bytes: expected"),
    ],
)
def test_a_bad_setting_is_named(server: Running, config: dict[str, object], problem: str) -> None:
    """A setting that is unknown or out of bounds answers 400 with its name, and nothing changes."""
    server.create()
    before = server.get("/topics/orders/config").json()
    changed = server.client.patch("/topics/orders/config", json=config)
    created = server.post("/topics", {"name": "other", "config": config})

    for reply in (changed, created):
        status, text = error_of(reply)
        assert status == 400
        assert problem in text
        assert reply.json()["code"] == "invalid_config"
    assert server.get("/topics/orders/config").json() == before
    assert server.get("/topics").json() == {"topics": ["orders"]}


def test_a_name_is_taken_once(server: Running) -> None:
    """A second topic of the same name answers 409."""
    server.create()
    reply = server.post("/topics", {"name": "orders"})

    assert error_of(reply) == (409, "topic already exists")
    assert reply.json()["code"] == "topic_exists"


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("GET", "/topics/none", "topic not found"),
        ("DELETE", "/topics/none", "topic not found"),
        ("GET", "/topics/none/config", "topic not found"),
        ("PATCH", "/topics/none/config", "topic not found"),
        ("GET", "/topics/none/partitions", "topic not found or no partition info available"),
        ("GET", "/topics/none/partitions/0/messages", "topic not found: none"),
        ("GET", "/topics/none/offsets?timestamp=latest", "topic not found"),
        ("POST", "/topics/none/messages", "topic not found"),
    ],
)
def test_an_unknown_topic_answers_404(server: Running, method: str, path: str, text: str) -> None:
    """Whatever is asked of a topic that is not there, the answer is 404 in the contract's words."""
    body = {"messages": [{"value": "a"}]} if method == "POST" else {}
    reply = server.client.request(method, path, json=body)

    assert error_of(reply) == (404, text)
    assert reply.json()["code"] == "topic_not_found"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "name is required"),
        ({"name": ""}, "name is required"),
        ({"name": None}, "name is required"),
        ({"name": 5}, "name: expected str, got int"),
        ({"name": "a", "num_partitions": "3"}, "num_partitions: expected int, got str"),
        ({"name": "a", "num_partitions": 1.5}, "num_partitions: expected int, got float"),
        ({"name": "a", "num_partitions": True}, "num_partitions: expected int, got bool"),
        ({"name": "a", "num_partitions": 2**64}, "num_partitions: expected int <= "),
        ({"name": "a", "num_partitions": 10_001}, "num_partitions: 10001 is not between 1 and "),
        ({"name": "a", "retention_hours": 2**62}, "retention_hours: "),
        ({"name": "a", "config": []}, "config: expected object, got array"),
        ([], "body: expected object, got array"),
    ],
)
def test_a_bad_request_names_its_field(server: Running, body: object, text: str) -> None:
    """A missing field, a wrong type or a number out of bounds answers 400 and creates nothing."""
    status, error = error_of(server.post("/topics", body))

    assert status == 400
    assert error.startswith(text)
    assert server.get("/topics").json() == {"topics": []}


def test_unknown_fields_are_ignored(server: Running) -> None:
    """A client of a later version may send fields this one does not know."""
    server.create(colour="blue", nested={"a": [1, 2, {"b": None}]})

    assert server.get("/topics").json() == {"topics": ["orders"]}


def test_partitions_name_their_node(server: Running) -> None:
    """Each partition is led and held by this node."""
    server.create(num_partitions=2)
    reply = server.get("/topics/orders/partitions").json()

    place = {"leader": "node-1", "replicas": ["node-1"], "isr": ["node-1"], "version": 1}
    assert reply == {
        "topic": "orders",
        "partitions": [{"partition": 0, **place}, {"partition": 1, **place}],
    }


def test_topics_and_settings_survive_a_restart(tmp_path: Path) -> None:
    """What was answered with 201 or 200 is there after the broker stopped and started."""
    with Running(tmp_path) as server:
        server.create(num_partitions=4, config={"retention_ms": "1h"})
        server.create("gone")
        server.client.patch("/topics/orders/config", json={"segment_bytes": 8192})
        server.client.delete("/topics/gone")
        server.publish({"value": "kept", "partition": 3})
        before = server.get("/topics/orders").json()
    with Running(tmp_path) as server:
        after = server.get("/topics/orders").json()
        topics = server.get("/topics").json()

    assert after == before
    assert after["config"]["segment_bytes"] == 8192
    assert topics == {"topics": ["orders"]}


def test_nothing_is_there_at_the_first_start(server: Running) -> None:
    """A new broker has no topic and no message of its own making (trap D4)."""
    assert server.get("/topics").json() == {"topics": []}
    assert server.get("/stats").json()["total_size_bytes"] == 0
    assert not (server.data_dir / "logs").exists() or not any((server.data_dir / "logs").iterdir())
