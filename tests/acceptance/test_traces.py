"""The whole story of a message, told by a real broker to people who come from outside."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx

from tests.cli.running import BrokerProcess, run_process

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = PARENT[3:35]
SECONDS = 120.0
STORY = [
    ("orders", "publish.received"),
    ("orders", "publish.partitioned"),
    ("orders", "delay.scheduled"),
    ("orders", "publish.persisted"),
    ("orders", "delay.fired"),
    ("orders", "consume.fetched"),
    ("orders", "visibility.extended"),
    ("orders", "consume.nacked"),
    ("orders", "consume.redelivered"),
    ("orders", "visibility.extended"),
    ("orders", "visibility.expired"),
    ("orders", "consume.redelivered"),
    ("orders", "consume.nacked"),
    ("orders.dlq", "dlq.routed"),
    ("orders", "dlq.redriven"),
    ("orders", "consume.fetched"),
    ("orders", "consume.acked"),
]


class Asker:
    """A member of a group and an operator, both by HTTP."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.client = httpx.Client(base_url=f"http://{broker.http}", timeout=SECONDS)
        self.member = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def post(self, path: str, **body: Any) -> Any:
        reply = self.client.post(path, json=body)
        assert reply.is_success, reply.text
        return reply.json()

    def get(self, path: str, **query: Any) -> Any:
        reply = self.client.get(path, params=query)
        assert reply.is_success, reply.text
        return reply.json()

    def publish(self, *messages: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = {"messages": list(messages)}
        reply = self.client.post("/topics/orders/messages", json=body, headers=headers)
        assert "error" not in reply.text, reply.text

    def join(self, **options: Any) -> None:
        joined = self.post("/groups/billing/join", client_id="w", topics=["orders"], **options)
        self.member = joined["member_id"]

    def lease(self) -> dict[str, Any]:
        """Wait for the next message."""
        query = {"member_id": self.member, "timeout": "60s", "limit": 1}
        messages = self.get("/groups/billing/poll", **query)["messages"]
        ((message,),) = messages.values()
        found: dict[str, Any] = message
        return found

    def settle(self, verb: str, message: dict[str, Any], **fields: Any) -> None:
        self.post(f"/messages/{verb}", receipt_handle=message["receipt_handle"], **fields)

    def until(self, look: Callable[[], Any]) -> Any:
        """Ask again until there is an answer; each question is a round trip."""
        deadline = time.monotonic() + SECONDS
        while not (found := look()):
            assert time.monotonic() < deadline, "it does not come to that"
        return found


@contextmanager
def served(data: Path, rate: float = 1) -> Iterator[tuple[BrokerProcess, Asker]]:
    broker = BrokerProcess(data, "--set", f"tracing.sampling_rate={rate}")
    try:
        with Asker(broker) as asker:
            yield broker, asker
    finally:
        broker.stop()


def test_a_message_s_whole_life_is_one_trace(tmp_path: Path) -> None:
    """Delayed, leased, nacked, expired, redelivered, dead-lettered, redriven, acked."""
    with served(tmp_path / "data") as (broker, asker):
        tell_a_story(broker, asker)


def tell_a_story(broker: BrokerProcess, asker: Asker) -> None:
    asker.post("/topics", name="orders", num_partitions=1)
    asker.publish({"value": "a", "key": "k", "delay": "100ms"})
    asker.join(visibility_timeout="60s", max_retries=2, backoff="0s")
    first = asker.lease()
    asker.settle("visibility", first, extension_seconds=30)
    asker.settle("nack", first, reason="not today")
    second = asker.lease()
    asker.settle("visibility", second, extension_seconds=1)
    third = asker.lease()
    asker.settle("nack", third, reason="it exploded")
    asker.until(lambda: asker.client.get("/dlq/orders").is_success)
    asker.until(lambda: asker.get("/dlq/orders")["messages"])
    asker.post("/dlq/orders/redrive")
    last = asker.lease()
    asker.settle("ack", last)

    (summary,) = asker.get("/traces", limit=10)["traces"]
    story = asker.get(f"/traces/{summary['trace_id']}")
    spans = story["spans"]

    assert [(span["topic"], span["event_type"]) for span in spans] == STORY
    assert (summary["status"], summary["span_count"]) == ("completed", len(STORY))
    assert (summary["topic"], summary["partition"], summary["offset"]) == ("orders", 0, 0)
    check_family(spans)
    by_event = {span["event_type"]: span for span in spans}
    assert by_event["delay.fired"]["duration_ns"] >= 90_000_000
    assert by_event["visibility.expired"]["duration_ns"] >= 900_000_000
    assert by_event["visibility.expired"]["error"] == "the lease expired"
    assert [span["error"] for span in spans if span["event_type"] == "consume.nacked"] == [
        *("not today", "it exploded"),
    ]
    attempts = [span["attributes"]["attempt"] for span in spans if "redelivered" in str(span)]
    assert attempts == [2, 3]
    assert by_event["dlq.routed"]["attributes"]["reason"] == "MAX_RETRIES_EXCEEDED"
    assert [one["delivery_count"] for one in (first, second, third, last)] == [1, 2, 3, 1]
    for message in (first, second, third, last):
        assert message["headers"]["traceparent"][3:35] == summary["trace_id"]
    check_searches(asker, summary["trace_id"])
    check_command_line(broker, summary["trace_id"], spans)


def check_family(spans: list[dict[str, Any]]) -> None:
    """One root; everybody else has a parent among those before, and times go forward."""
    seen: set[str] = set()
    for span in spans:
        assert span["span_id"] not in seen
        parent = span.get("parent_span_id")
        assert parent in seen if seen else parent is None
        seen.add(span["span_id"])
    assert sorted(spans, key=lambda span: span["timestamp"]) == spans
    leases = [span for span in spans if span["event_type"].startswith("consume.")]
    for span in spans:
        if span["event_type"] in {"consume.acked", "consume.nacked", "visibility.expired"}:
            (lease,) = (one for one in leases if one["span_id"] == span["parent_span_id"])
            assert lease["event_type"] in {"consume.fetched", "consume.redelivered"}
            assert lease["consumer_id"] == span["consumer_id"]


def check_searches(asker: Asker, trace_id: str) -> None:
    """The message is found wherever it has been, and by whatever is known of it."""
    for query in (
        {"topic": "orders", "partition": 0, "offset": 0},
        {"topic": "orders", "offset": 1},
        {"topic": "orders.dlq"},
        {"key": "k"},
        {"consumer_group": "billing", "status": "completed"},
        {"min_duration": "900ms"},
    ):
        found = asker.get("/traces/search", **query)["traces"]
        assert [one["trace_id"] for one in found] == [trace_id], query
    assert asker.get("/traces/search", topic="orders", status="failed")["traces"] == []


def check_command_line(broker: BrokerProcess, trace_id: str, spans: list[dict[str, Any]]) -> None:
    """``goqueue trace`` tells the same."""
    server = ("--server", broker.native)
    told = run_process("trace", trace_id, "-o", "json", *server).data
    drawn = run_process("trace", *server, trace_id, COLUMNS="400").out

    assert [span["span_id"] for span in told["spans"]] == [span["span_id"] for span in spans]
    assert told["status"] == "completed"
    lines = drawn.splitlines()
    assert trace_id in lines[0]
    assert "completed" in lines[1]
    assert [event for _, event in STORY if event not in drawn] == []
    assert len(lines) == len(STORY) + 3
    acked = next(line for line in lines if "consume.acked" in line)
    routed = next(line for line in lines if "dlq.routed" in line)
    assert acked.index("consume.acked") > routed.index("dlq.routed")
    assert "reason=MAX_RETRIES_EXCEEDED" in routed
    tail = run_process("trace", "tail", "--once", "-o", "json", *server).out.splitlines()
    assert [json.loads(line)["event_type"] for line in tail if line].count("dlq.routed") == 1


def test_a_trace_goes_on_after_a_kill(tmp_path: Path) -> None:
    """Ids are the same; a sender's trace is found in the log by those who only know an offset."""
    with served(tmp_path / "data") as (broker, asker):
        asker.post("/topics", name="orders", num_partitions=1)
        asker.publish({"value": "a"}, {"value": "b"}, headers={"traceparent": PARENT})
        asker.publish({"value": "c"})
        asker.join(visibility_timeout="60s")
        leased = [asker.lease() for _ in range(3)]
        made = leased[2]["headers"]["traceparent"][3:35]
        assert asker.get(f"/traces/{made}")["status"] == "in_progress"
        broker.stop(signal.SIGKILL)

    with served(tmp_path / "data") as (_, asker):
        assert asker.get("/traces")["traces"] == []
        for message in leased:
            asker.settle("ack", message)

        def spans_of(trace_id: str) -> list[dict[str, Any]]:
            spans: list[dict[str, Any]] = (
                asker.client.get(f"/traces/{trace_id}").json().get("spans")
            )
            return spans or []

        asker.until(lambda: len(spans_of(TRACE)) == 2)
        assert [(span["offset"], span["event_type"]) for span in spans_of(TRACE)] == [
            *((0, "consume.acked"), (1, "consume.acked")),
        ]
        assert [span["event_type"] for span in spans_of(made)] == ["consume.acked"]


def test_dead_letters_are_always_traced(tmp_path: Path) -> None:
    """At rate 0, too: their earlier life is told from what they know."""
    with served(tmp_path / "data", rate=0) as (_, asker):
        asker.post("/topics", name="orders", num_partitions=1)
        asker.publish({"value": "good"}, {"value": "poison"})
        asker.join(max_retries=1, backoff="0s")
        reasons = ["not today", "it exploded"]
        for _ in range(3):
            message = asker.lease()
            assert "headers" not in message
            if message["value"] == "good":
                asker.settle("ack", message)
            else:
                asker.settle("nack", message, reason=reasons.pop(0))
        asker.until(lambda: asker.get("/traces")["traces"])
        asker.post("/dlq/orders/redrive")
        last = asker.lease()
        asker.settle("ack", last)

        (summary,) = asker.get("/traces")["traces"]
        spans = asker.get(f"/traces/{summary['trace_id']}")["spans"]

    assert [span["event_type"] for span in spans] == [
        *("publish.received", "consume.nacked", "consume.nacked"),
        *("dlq.routed", "dlq.redriven", "consume.fetched", "consume.acked"),
    ]
    assert [span.get("error") for span in spans[1:3]] == ["not today", "it exploded"]
    assert spans[0]["attributes"] == {"retold": True}
    assert last["headers"]["traceparent"][3:35] == summary["trace_id"]
