"""``GET /traces…``: what happened to messages, as the contract has it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goqueue.testing.clock import FakeClock
from tests.transport.http.queueing import Worker
from tests.transport.http.running import Running, error_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = PARENT[3:35]


@pytest.fixture
def server(tmp_path: Path, clock: FakeClock) -> Iterator[Running]:
    with Running(tmp_path / "data", clock=clock, tracing_rate=1.0) as running:
        yield running


def events_of(server: Running, trace_id: str) -> list[str]:
    return [span["event_type"] for span in story_of(server, trace_id)["spans"]]


def story_of(server: Running, trace_id: str) -> dict[str, Any]:
    reply = server.get(f"/traces/{trace_id}")
    assert reply.status_code == 200, reply.text
    story: dict[str, Any] = reply.json()
    return story


def test_a_message_has_one_trace(server: Running, clock: FakeClock) -> None:
    """Received, partitioned, persisted, leased and acked: one root, parents before children."""
    server.create(num_partitions=1)
    server.publish({"value": "a"})
    clock.advance(250)
    worker = Worker(server)
    (message,) = worker.poll()
    clock.advance(40)
    worker.settle("ack", message)

    listed = server.get("/traces").json()
    (summary,) = listed["traces"]
    story = story_of(server, summary["trace_id"])

    assert listed["total"] == 1
    assert set(summary) == {
        *("trace_id", "topic", "partition", "offset", "start_time", "end_time"),
        *("duration_ms", "status", "span_count"),
    }
    assert (summary["topic"], summary["partition"], summary["offset"]) == ("orders", 0, 0)
    assert (summary["status"], summary["duration_ms"], summary["span_count"]) == (
        "completed",
        290,
        5,
    )
    assert {**story, "spans": 5} == {
        **{name: value for name, value in summary.items() if name != "span_count"},
        "spans": 5,
    }
    received, partitioned, persisted, fetched, acked = story["spans"]
    assert [span["event_type"] for span in story["spans"]] == [
        *("publish.received", "publish.partitioned", "publish.persisted"),
        *("consume.fetched", "consume.acked"),
    ]
    assert "parent_span_id" not in received
    for span in (partitioned, persisted, fetched):
        assert span["parent_span_id"] == received["span_id"]
    assert acked["parent_span_id"] == fetched["span_id"]
    assert (fetched["duration_ns"], acked["duration_ns"]) == (250_000_000, 40_000_000)
    assert (fetched["consumer_group"], fetched["consumer_id"]) == ("billing", worker.member)
    assert len({span["span_id"] for span in story["spans"]}) == 5
    assert message["headers"]["traceparent"] == f"00-{story['trace_id']}-{received['span_id']}-01"


def test_the_trace_of_the_sender_is_taken(server: Running) -> None:
    """From the message, or from the request for all its messages that have none."""
    server.create(num_partitions=1)
    own = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    body = {
        "messages": [
            {"value": "a"},
            {"value": "b", "headers": {"traceparent": own, "source": "shop"}},
            {"value": "c", "headers": {"traceparent": "00-nonsense"}},
            {"value": "d", "headers": {"traceparent": own[:-1] + "0"}},
        ]
    }
    reply = server.post("/topics/orders/messages", body, headers={"traceparent": PARENT})
    assert [one["offset"] for one in reply.json()["results"]] == [0, 1, 2, 3]

    shared, alone = story_of(server, TRACE), story_of(server, "1" * 32)

    assert [(span["offset"], span["event_type"]) for span in shared["spans"]] == [
        *((0, "publish.received"), (2, "publish.received")),
        *((0, "publish.partitioned"), (2, "publish.partitioned")),
        *((0, "publish.persisted"), (2, "publish.persisted")),
    ]
    assert shared["spans"][0]["parent_span_id"] == PARENT[36:52]
    assert [span["offset"] for span in alone["spans"]] == [1, 1, 1]
    assert alone["spans"][0]["parent_span_id"] == "2" * 16
    assert server.get("/traces").json()["total"] == 3
    stored = [message.get("headers") for message in server.read()["messages"]]
    assert stored[:3] == [
        {"traceparent": PARENT},
        {"traceparent": own, "source": "shop"},
        {"traceparent": PARENT},
    ]
    assert [one["headers"]["traceparent"][3:35] for one in Worker(server).poll()] == [
        *(TRACE, "1" * 32, TRACE, "1" * 32),
    ]
    assert events_of(server, TRACE)[-1] == "consume.fetched"


@pytest.mark.parametrize("text", ["", "00", PARENT[:-1], PARENT.upper(), "ÿ" * 55, "0" * 5_000])
def test_a_malformed_traceparent_never_fails_a_publish(server: Running, text: str) -> None:
    """It is left out, and the message has the trace the broker makes."""
    server.create(num_partitions=1)
    message = {"value": "a", "headers": {"traceparent": text, "source": "shop"}}
    reply = server.post(
        "/topics/orders/messages", {"messages": [message]}, headers={"traceparent": "00-what"}
    )

    assert reply.json()["results"] == [{"partition": 0, "offset": 0}]
    assert server.read()["messages"][0]["headers"] == {"source": "shop"}
    (summary,) = server.get("/traces").json()["traces"]
    assert summary["trace_id"] != TRACE


def test_delays_are_told(server: Running, clock: FakeClock) -> None:
    """Scheduled, moved, cancelled; scheduled and due. A trace that waits is delayed."""
    server.create(num_partitions=1)
    server.publish({"value": "a", "delay": "10s"}, {"value": "b", "delay": "10s"})
    first, second = (
        server.get("/traces/search", offset=offset).json()["traces"][0] for offset in (0, 1)
    )
    assert first["status"] == second["status"] == "delayed"
    server.client.delete("/topics/orders/delayed/0/0")
    server.client.patch("/topics/orders/delayed/0/1", json={"delay": "20s"})
    clock.advance(20_000)
    server.inside(server.broker.delays.timer.tick)

    assert events_of(server, first["trace_id"])[-2:] == ["delay.scheduled", "delay.canceled"]
    story = story_of(server, second["trace_id"])
    assert [span["event_type"] for span in story["spans"]][-3:] == [
        *("delay.scheduled", "delay.rescheduled", "delay.fired"),
    ]
    assert story["spans"][-1]["duration_ns"] == 20_000_000_000
    assert "deliver_at" in story["spans"][-2]["attributes"]


def test_traces_are_found(server: Running, clock: FakeClock) -> None:
    """By place, key, group, status, time and duration; the latest first."""
    server.create(num_partitions=2)
    server.create("other", num_partitions=1)
    for number in range(4):
        server.publish({"value": "a", "key": f"k{number}", "partition": number % 2})
        clock.advance(1_000)
    server.publish({"value": "b"}, topic="other")
    worker = Worker(server)
    worker.settle("ack", worker.poll()[0])

    def found(**query: str | int) -> list[tuple[str, int, int]]:
        reply = server.get("/traces/search", **query)
        assert reply.status_code == 200, reply.text
        body = reply.json()
        assert body["total"] == len(body["traces"])
        assert {name: body["query"][name] for name in query if name != "limit"} == query
        return [(one["topic"], one["partition"], one["offset"]) for one in body["traces"]]

    assert len(found()) == 5
    assert found()[0] == ("other", 0, 0)
    assert len(server.get("/traces", limit=2).json()["traces"]) == 2
    assert len(server.get("/traces", limit=5_000).json()["traces"]) == 5
    assert found(topic="orders", partition=1) == [("orders", 1, 1), ("orders", 1, 0)]
    assert found(topic="orders", partition=1, offset=0) == [("orders", 1, 0)]
    assert found(key="k3") == [("orders", 1, 1)]
    assert found(key="nobody") == []
    assert len(found(consumer_group="billing")) == 4
    assert len(found(status="completed")) == 1
    assert found(status="failed") == []
    assert found(topic="nothing") == []
    start = server.get("/traces/search", topic="other").json()["traces"][0]["start_time"]
    assert found(start=start, topic="other") == [("other", 0, 0)]
    assert len(found(end=start)) == 5
    assert len(found(min_duration="3500ms")) == 1
    assert len(found(max_duration="0ms")) == 1


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "x"},
        {"partition": "-2"},
        {"partition": "x"},
        {"offset": "1.5"},
        {"status": "lost"},
        {"start": "yesterday"},
        {"end": "2026-13-01T00:00:00Z"},
        {"min_duration": "long"},
        {"max_duration": "5 parsecs"},
    ],
    ids=str,
)
def test_a_bad_search_is_refused(server: Running, query: dict[str, str]) -> None:
    """400, naming what is wrong."""
    status, text = error_of(server.get("/traces/search", **query))

    assert status == 400
    assert next(iter(query)) in text


def test_ids_are_checked(server: Running) -> None:
    """A malformed id is 400, an unknown one 404."""
    assert error_of(server.get("/traces/xyz")) == (400, "invalid trace ID format")
    assert error_of(server.get(f"/traces/{'0' * 32}")) == (400, "invalid trace ID format")
    status, text = error_of(server.get(f"/traces/{'1' * 32}"))
    assert (status, text) == (404, f"trace not found: {'1' * 32}")


def test_the_numbers_of_tracing(server: Running) -> None:
    server.create(num_partitions=1)
    server.publish({"value": "a"}, {"value": "b"})

    assert server.get("/traces/stats").json() == {
        "enabled": True,
        "spans_in_buffer": 6,
        "buffer_capacity": 100_000,
        "traces_indexed": 2,
        "sampling_rate": 1.0,
        "exporters_enabled": [],
    }
    assert server.metric("goqueue_tracing_spans_total") == 6


def test_rates_are_per_topic(server: Running) -> None:
    """A topic may be traced more, less or not at all; what senders record is always traced."""
    server.create("silent", num_partitions=1, config={"trace_sampling": 0})
    server.create("some", num_partitions=1, config={"trace_sampling": 0.1})
    for topic in ("silent", "some"):
        server.publish(*[{"value": "a"}] * 1_000, topic=topic)
        server.publish({"value": "b", "headers": {"traceparent": PARENT}}, topic=topic)

    def count(topic: str) -> int:
        return int(server.get("/traces/search", topic=topic, limit=1_000).json()["total"])

    assert count("silent") == 1
    assert count("some") == 101
    server.client.patch("/topics/silent/config", json={"trace_sampling": "broker"})
    server.publish(*[{"value": "a"}] * 10, topic="silent")
    assert count("silent") == 11
    bad = server.client.patch("/topics/silent/config", json={"trace_sampling": 2})
    assert bad.status_code == 400
    assert "trace_sampling" in bad.text


def test_tracing_can_be_off(tmp_path: Path) -> None:
    """Then nothing is noted, and nothing added to messages."""
    with Running(tmp_path / "data", tracing_enabled=False, tracing_rate=1.0) as server:
        server.create(num_partitions=1)
        server.publish({"value": "a", "headers": {"traceparent": PARENT}}, {"value": "b"})
        messages = Worker(server).poll()

        assert [message.get("headers") for message in messages] == [{"traceparent": PARENT}, None]
        assert server.get("/traces").json() == {"traces": [], "total": 0}
        assert server.get("/traces/stats").json()["enabled"] is False
        assert server.metric("goqueue_tracing_spans_total") == 0
