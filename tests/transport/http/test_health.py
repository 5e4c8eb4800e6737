"""Health, version, sizes and metrics."""

import platform
import re
from pathlib import Path

import pytest

from goqueue.base.errors import StorageFailedError
from goqueue.testing.clock import FakeClock
from tests.transport.http.running import Running, error_of

NOW = "2023-11-14T22:13:20.000000000Z"


def test_health_answers(server: Running) -> None:
    """The simplest probe says ok and the time."""
    assert server.get("/health").json() == {"status": "ok", "timestamp": NOW}


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_a_serving_broker_passes(server: Running, clock: FakeClock, path: str) -> None:
    """Each probe passes while the broker serves, and says for how long it has."""
    clock.advance(90_500)
    reply = server.get(path)

    assert reply.status_code == 200
    assert reply.json() == {
        "status": "pass",
        "timestamp": "2023-11-14T22:14:50.500000000Z",
        "uptime": "1m30.5s",
    }


def test_readiness_can_be_looked_into(server: Running) -> None:
    """With verbose each check and the size of the broker are shown."""
    server.create(num_partitions=1)
    server.publish({"value": "v" * 100})
    reply = server.get("/readyz", verbose="true").json()

    assert set(reply["checks"]) == {"broker", "storage"}
    for check in reply["checks"].values():
        assert check["status"] == "pass"
        assert re.fullmatch(r"\d+\.\d{3}ms", check["latency"])
    assert re.fullmatch(
        r"\d+ partitions take writes; [\d.]+ [KMGT]iB are free",
        reply["checks"]["storage"]["message"],
    )
    assert reply["checks"]["broker"]["message"] == "1 topics are served"
    assert "message" not in reply, "nothing is wrong"
    size = server.get("/stats").json()["total_size_bytes"]
    assert reply["broker"] == {"node_id": "node-1", "topic_count": 1, "total_size": size}
    assert size > 100


def test_a_failed_disk_shows(server: Running) -> None:
    """One dead partition is a warning; when all are dead the broker is not ready."""
    server.create(num_partitions=2)
    partitions = server.inside(lambda: server.broker.topic("orders").partitions)
    partitions[0].log.failure = StorageFailedError("gone")
    some = server.get("/readyz", verbose="1")
    partitions[1].log.failure = StorageFailedError("gone")
    all_of_them = server.get("/readyz")
    for partition in partitions:
        partition.log.failure = None

    assert some.status_code == 200
    assert some.json()["status"] == some.json()["checks"]["storage"]["status"] == "warn"
    assert "orders/0" in some.json()["message"]
    assert all_of_them.status_code == 503
    assert all_of_them.json()["status"] == "fail"
    assert all_of_them.json()["message"]
    assert server.get("/livez").status_code == 200


def test_a_stopping_broker_fails_its_probes(tmp_path: Path) -> None:
    """Once the broker stops, the probes and the metrics answer 503 and say why."""
    with Running(tmp_path) as server:
        server.await_inside(server.broker.stop())
        replies = [server.get(path) for path in ("/healthz", "/livez", "/readyz")]
        metrics = server.get("/metrics")
        publish = server.post("/topics/orders/messages", {"messages": [{"value": "a"}]})

    for reply in replies:
        assert reply.status_code == 503
        assert reply.json()["status"] == "fail"
        assert reply.json()["message"]
    assert error_of(metrics)[0] == 503
    assert error_of(publish)[0] == 503
    assert publish.json()["code"] == "shutting_down"
    assert publish.headers["retry-after"] == "1"


def test_the_version_is_told(server: Running) -> None:
    """Version, commit, build time and the Python that runs it."""
    reply = server.get("/version").json()

    assert set(reply) == {"version", "git_commit", "build_time", "python_version"}
    assert reply["python_version"] == platform.python_version()


def test_sizes_are_told(server: Running, clock: FakeClock) -> None:
    """Messages and bytes of each topic, and of all."""
    server.create(num_partitions=2)
    server.create("empty", num_partitions=1)
    server.publish(*[{"value": "v"}] * 10)
    clock.advance(1_000)
    reply = server.get("/stats").json()

    orders = reply["topic_stats"]["orders"]
    assert (reply["node_id"], reply["uptime"], reply["topics"]) == ("node-1", "1s", 2)
    assert (orders["Name"], orders["Partitions"], orders["TotalMessages"]) == ("orders", 2, 10)
    assert reply["total_size_bytes"] == orders["TotalSize"] > 0
    assert reply["topic_stats"]["empty"]["TotalMessages"] == 0


@pytest.mark.parametrize("extra", [{}, {"headers": {"a": "b"}}], ids=["plain", "full"])
def test_publishing_and_reading_move_the_counters(
    server: Running, extra: dict[str, object]
) -> None:
    """HTTP bumps the same metrics as every other way in and out (trap S6)."""
    server.create(num_partitions=1)
    server.publish(*[{"value": "v" * 100, **extra}] * 10)
    server.read(limit=4)
    server.read(offset=4, limit=4)

    label = '{topic="orders"}'
    group = '{consumer_group="",topic="orders"}'
    assert server.metric(f"goqueue_broker_messages_published_total{label}") == 10
    assert server.metric(f"goqueue_broker_bytes_published_total{label}") > 1000
    assert server.metric(f"goqueue_broker_publish_latency_seconds_count{label}") == 1
    assert server.metric(f"goqueue_broker_messages_consumed_total{group}") == 8
    assert server.metric(f"goqueue_broker_bytes_consumed_total{group}") == 800
    assert server.metric(f"goqueue_broker_fetch_latency_seconds_count{group}") == 2
    assert server.metric(f"goqueue_storage_log_end_offset{label}") == 10
    assert server.metric("goqueue_broker_topic_count") == 1


def test_metrics_are_prometheus_text(server: Running) -> None:
    """A scraper finds the format it expects."""
    reply = server.get("/metrics")

    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE goqueue_broker_topic_count gauge" in reply.text


def test_no_series_is_there_twice(server: Running) -> None:
    """A scraper refuses a text in which a series or the head of a family is repeated."""
    server.create("orders")
    server.create("state", cleanup_policy="compact")
    server.publish({"value": "a", "key": "k"}, {"value": "b", "delay": "1h"})
    for group in ("billing", "audit"):
        server.post(f"/groups/{group}/join", {"client_id": "c", "topics": ["orders", "state"]})
    lines = server.get("/metrics").text.splitlines()

    heads = [line for line in lines if line.startswith("#")]
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(heads) == len(set(heads))
    assert sorted(series) == sorted(set(series))
    members = 'goqueue_broker_active_consumers{consumer_group="billing",topic="orders"}'
    assert series.count(members) == 1
