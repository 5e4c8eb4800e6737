"""Rules on a real session: nothing lost, dead letters counted, explained and sent back by SQL."""

import json
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from goqueue.base.ids import Offset, PartitionId
from goqueue.client.admin.dlq import DeadLetter
from goqueue.client.sync import Client
from goqueue.core.tracing.kinds import ACKED, FETCHED, PERSISTED, RECEIVED
from goqueue.core.tracing.note import TraceSpan
from goqueue.spark.pipelines.bind import Surroundings
from goqueue.spark.pipelines.dlq_page import dlq_page
from goqueue.spark.pipelines.dlq_report import report
from goqueue.spark.pipelines.problems import PipelineError
from goqueue.spark.pipelines.redrive import pick, portions, preview, redrive
from goqueue.spark.pipelines.spec import Mode
from goqueue.spark.pipelines.trace_page import trace_page
from goqueue.spark.pipelines.trace_report import trace_report
from tests.spark.pipelines.reading import Run, values

ORDERS = """
name: orders-{mode}
sources:
  orders:
    topic: {topic}
    schema: id BIGINT, amount INT, timestamp STRING
expectations:
  orders:
    - {{name: readable, that: _corrupt IS NULL, else: quarantine}}
    - {{name: positive, that: amount > 0, else: quarantine}}
    - {{name: odd, that: id % 2 = 1, else: drop}}
transforms:
  plain: {{sql: "SELECT key, id, amount, timestamp_ FROM orders"}}
sinks:
  out: {{from: plain, topic: {topic}-{mode}, key: key, value: "to_json(struct(id, timestamp_))"}}
"""


def test_what_comes_in_goes_out_or_is_kept_with_its_reason(
    client: Client, topic: str, run_text: Run, around: Surroundings
) -> None:
    """Rows in = rows out + quarantined + dropped; letters are whole, counted, sent back by SQL."""
    with client.producer(topic) as producer:
        for number in range(600):
            value = {"id": number, "amount": number % 10 - 2, "timestamp": "mine"}
            headers = {"trace": b"\x00\xff", "goqueue-dlq": b"old"} if number % 3 else None
            producer.send(json.dumps(value).encode(), key=b"k%d" % (number % 7), headers=headers)
        producer.send(b"{rubbish", key=b"\xff")
        producer.send(b"[]", headers={"large": b"x" * 64_900})
    sent = {(one.partition, one.offset): one for one in client.read(topic)}
    for name in (f"{topic}.dlq", f"{topic}-available-now", f"{topic}-batch"):
        client.create_topic(name, partitions=2)

    state = run_text(ORDERS.format(topic=topic, mode="available-now"))
    again = run_text(ORDERS.format(topic=topic, mode="available-now"))
    out = values(client, f"{topic}-available-now")
    page = client.dlq_peek(topic, limit=1_000)

    good = [n for n in range(600) if n % 10 > 2]
    assert state.state == "done"
    assert {name: query.rows for name, query in state.queries.items()} == {
        "out": 602,
        "quarantine_orders": 602,
    }
    assert again.queries["out"].rows == 0
    assert sorted(one["id"] for one in out) == [n for n in good if n % 2]
    assert out[0]["timestamp_"] == "mine"
    assert state.violations == {
        "orders: readable": 2,
        "orders: positive": 600 - len(good) + 2,
        "orders: odd": 302,
    }
    assert len(page.letters) == 600 - len(good) + 2
    for letter in page.letters:
        story = letter.story
        if not story.reason:
            # Its headers left no room for a story.
            assert letter.message.value == b"[]"
            continue
        original = sent[PartitionId(story.original_partition), Offset(story.original_offset)]
        before = {
            name: one for name, one in (original.headers or {}).items() if name != "goqueue-dlq"
        }
        assert (letter.message.key, letter.message.value) == (original.key, original.value)
        assert (letter.message.headers or {}) == before
        assert story.original_timestamp_us == original.timestamp_us
        assert (story.reason, story.last_group) == ("EXPECTATION", "orders-available-now")
    errors = {letter.story.last_error for letter in page.letters}
    assert "readable: not (_corrupt IS NULL); positive: not (amount > 0)" in errors

    check_report(around, topic, page.letters)
    count = check_redrive(client, around, topic, page.letters)

    batch = run_text(ORDERS.format(topic=topic, mode="batch"), Mode.BATCH)
    assert batch.queries["out"].rows == len([n for n in good if n % 2])
    assert batch.queries["quarantine_orders"].rows == len(page.letters) + count
    assert batch.violations["orders: readable"] == 2


def check_report(around: Surroundings, topic: str, letters: list[DeadLetter]) -> None:
    """The report counts what is there, and its page stands alone."""
    counted = report(around, [f"{topic}.dlq"])
    assert counted.count == len(letters)
    assert (counted.reasons[0].name, counted.reasons[0].count) == (
        (topic, "EXPECTATION"),
        len(letters) - 1,
    )
    assert counted.groups[0].name == ("orders-available-now", "EXPECTATION")
    assert len(counted.keys) == 9
    html = dlq_page(counted)
    assert html.count("<svg") == 2
    assert "positive: not (amount &gt; 0)" in html
    assert "src=" not in html


def check_redrive(
    client: Client, around: Surroundings, topic: str, letters: list[DeadLetter]
) -> int:
    """A query picks letters, just those go, and only once; return how many."""
    sql = "SELECT * FROM letters WHERE reason = 'EXPECTATION' AND key = 'k3' AND attempts = 0"
    picked = pick(around, [f"{topic}.dlq"], sql)
    count = sum(1 for letter in letters if letter.message.key == b"k3")
    trial = preview(client, picked, max_redrives=3)
    done = redrive(client, picked, max_redrives=3, by="ann")
    twice = redrive(client, picked, max_redrives=3)
    assert count > 10
    assert [(one.picked, one.moved, one.gone) for one in trial] == [(count, count, 0)]
    assert [(one.picked, one.moved) for one in done] == [(count, count)]
    assert [(one.moved, one.gone) for one in twice] == [(0, count)]
    with pytest.raises(PipelineError, match="does not return dlq, partition"):
        pick(around, [f"{topic}.dlq"], "SELECT offset FROM letters")
    with pytest.raises(PipelineError, match="UNRESOLVED_COLUMN"):
        pick(around, [f"{topic}.dlq"], "SELECT nope FROM letters")
    return count


def test_portions_are_bounded() -> None:
    """Places go in portions of a few runs, none lost, none twice."""
    places = {0: [5, 1, 2, 9], 1: [0], 2: list(range(0, 10, 2))}
    found = list(portions(places, runs_max=3))

    assert found == [{0: [1, 2, 5, 9]}, {1: [0], 2: [0, 2]}, {2: [4, 6, 8]}]


def test_traces_become_latencies(spark: SparkSession, tmp_path: Path) -> None:
    """Percentiles by topic: each stage, and from publish to ack; torn lines are counted."""
    spans: list[TraceSpan] = []
    for offset in range(1, 101):
        for kind, at_ms, duration_ms in (
            (RECEIVED, 1_000, 2),
            (PERSISTED, 1_002, 2),
            (FETCHED, 1_002 + offset, offset),
            (ACKED, 1_002 + 2 * offset, offset),
        ):
            spans.append(
                TraceSpan(
                    topic="orders",
                    partition=0,
                    offset=offset,
                    trace_id=f"{offset:032x}",
                    span_id=f"{len(spans):016x}",
                    event_type=kind,
                    timestamp_ns=at_ms * 1_000_000,
                    duration_ns=duration_ms * 1_000_000,
                    consumer_group="billing" if kind in {FETCHED, ACKED} else None,
                )
            )
    lines = [msgspec.json.encode(span) for span in spans]
    (tmp_path / "traces-2026-01-31-001.json").write_bytes(b"\n".join([*lines, b'{"trace_id": "f']))
    found = trace_report(spark, [str(tmp_path)])

    assert (found.spans, found.traces, found.unreadable) == (400, 100, 1)
    (whole,) = found.end_to_end
    assert (whole.topic, whole.what, whole.count) == ("orders", "billing", 100)
    assert (whole.p50_ms, whole.p90_ms, whole.max_ms) == (102.0, 182.0, 202.0)
    assert [one.what for one in found.stages] == [RECEIVED, PERSISTED, FETCHED, ACKED]
    assert (found.stages[2].p50_ms, found.stages[2].p99_ms) == (50.0, 99.0)
    html = trace_page(found)
    assert html.count("<svg") == 1
    assert "billing" in html
