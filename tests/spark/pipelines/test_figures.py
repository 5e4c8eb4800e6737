"""What is told about runs: progress, state folders, errors, templates, topics. No Spark."""

import json
import os
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from goqueue.spark.pipelines.dlq_page import dlq_page
from goqueue.spark.pipelines.dlq_report import DlqReport, Line
from goqueue.spark.pipelines.failure import brief
from goqueue.spark.pipelines.graph import plan
from goqueue.spark.pipelines.load import parse_text
from goqueue.spark.pipelines.metrics import PipelineMetrics
from goqueue.spark.pipelines.progress import Figures, advance, lag_of
from goqueue.spark.pipelines.spec import Mode
from goqueue.spark.pipelines.state import (
    PipelineRunningError,
    PipelineUnknownError,
    QueryState,
    RunState,
    StateFolder,
    pipelines_in,
)
from goqueue.spark.pipelines.templates import TEMPLATES, fill
from goqueue.spark.pipelines.topics import check_topics


def report(batch: int, rows: int, **more: Any) -> dict[str, Any]:
    """Return a report as Spark makes it."""
    sources = [
        {
            "latestOffset": {"orders": {"0": 100, "1": 50}},
            "endOffset": json.dumps({"orders": {"0": 90}}),
        },
        {"latestOffset": None, "endOffset": {"logOffset": 3}},
    ]
    return {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": 12.34,
        "durationMs": {"triggerExecution": 250},
        "sources": sources,
        **more,
    }


def test_progress_adds_up() -> None:
    """Each batch counts once, however often it is reported; idle reports count nothing."""
    figures = Figures()
    observed = {"goqueue_orders": {"n": 10, "v_0": 3, "v_1": None}}
    late = [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}, {}]
    for one in (
        report(0, 10, observedMetrics=observed, stateOperators=late),
        report(0, 10, observedMetrics=observed, stateOperators=late),
        report(1, 0),
        report(1, 5, observedMetrics=observed),
        report(2, 0, processedRowsPerSecond=float("nan")),
    ):
        figures = advance(figures, one)

    assert (figures.batches, figures.rows, figures.batch_id) == (2, 15, 1)
    assert figures.late_rows == 3
    assert (figures.violations, figures.seen) == ({"orders.0": 6}, {"orders": 20})
    assert (figures.batch_ms, figures.rows_per_second, figures.lag_rows) == (250, 0.0, 60)


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        ([], None),
        ([{"latestOffset": None, "endOffset": {"t": {"0": 1}}}], None),
        ([{"latestOffset": {"t": {"0": 5}}, "endOffset": {"t": {"0": 7}}}], 0),
        ([{"latestOffset": "5", "endOffset": "3"}], None),
        ([{"latestOffset": "{", "endOffset": {}}], None),
        ([{"latestOffset": {"logOffset": 5}, "endOffset": {"logOffset": 3}}], None),
    ],
)
def test_lag_is_of_topics_only(sources: list[Any], lag: int | None) -> None:
    """Sources with other offsets, or none, tell no lag."""
    assert lag_of({"sources": sources}) == lag


def test_a_state_folder_knows_who_runs(tmp_path: Path) -> None:
    """One process at a time; what it said last stays; a silent end was a kill."""
    folder = StateFolder(tmp_path, "shop")
    with pytest.raises(PipelineUnknownError):
        folder.read()
    with folder.lock():
        folder.write(RunState(name="shop", queries={"out": QueryState(rows=7)}))
        folder.ask_to_stop()

        assert folder.is_running()
        assert folder.is_asked_to_stop()
        assert folder.read().state == "running"
        told = rf"shop runs already: process {os.getpid()} on .+, since 20.+ UTC"
        with (
            pytest.raises(PipelineRunningError, match=told),
            StateFolder(tmp_path, "shop").lock(),
        ):
            raise AssertionError("it runs twice")
    folder.checkpoint("out").mkdir(parents=True)
    folder.checkpoint("other").mkdir(parents=True)

    assert folder.read().state == "killed"
    assert folder.read().queries["out"].rows == 7
    assert [one.name for one in pipelines_in(tmp_path)] == ["shop"]
    assert folder.sinks() == ["other", "out"]
    folder.reset("out")
    assert folder.sinks() == ["other"]
    assert not folder.is_asked_to_stop()
    folder.reset()
    folder.reset()
    assert folder.sinks() == []


def test_a_state_is_never_half_written(tmp_path: Path) -> None:
    """A reader beside a writer finds a whole state every time."""
    folder = StateFolder(tmp_path, "shop")
    done = threading.Event()
    with folder.lock():
        folder.write(RunState(name="shop"))

        def write() -> None:
            for number in range(50):
                queries = {f"sink_{one}": QueryState(rows=number) for one in range(number)}
                folder.write(RunState(name="shop", queries=queries))
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        seen = 0
        while not done.is_set():
            state = folder.read()
            assert {query.rows for query in state.queries.values()} <= {len(state.queries)}
            seen += 1
        writer.join()

    assert seen
    assert len(folder.read().queries) == 49


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            (
                "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: "
                "[USER_RAISED_EXCEPTION] boom SQLSTATE: P0001 SQLSTATE: XXKST\n"
                "=== Streaming Query ===\nIdentifier: x"
            ),
            "[USER_RAISED_EXCEPTION] boom",
        ),
        (
            (
                "[UNRESOLVED_COLUMN] A column `nope` cannot be resolved. SQLSTATE: 42703; line 1;\n"
                "'Project ['nope]\n+- View"
            ),
            "[UNRESOLVED_COLUMN] A column `nope` cannot be resolved.; line 1",
        ),
        (
            (
                "[STREAM_FAILED] Query x terminated with exception: [PYTHON] Reason:\n"
                "Traceback (most recent call last):\n"
                '  File "a.py", line 1, in f\n'
                "goqueue.base.errors.DataLossError: orders/0: offsets 3..5 are gone\n"
                " SQLSTATE: 39000\n=== Streaming Query ===\n"
            ),
            "DataLossError: orders/0: offsets 3..5 are gone",
        ),
        (
            (
                "An exception was raised by the Python Proxy. Return Message: "
                "Traceback (most recent call last):\n"
                '  File "a.py", line 1, in f\n'
                "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.\n"
                ": org.apache.spark.SparkException: [NOT_FOUND] no such source. SQLSTATE: 42K02\n"
                "\tat org.x.Y.z(Y.scala:1)\nCaused by: java.lang.ClassNotFoundException: x.Y\n"
            ),
            "[NOT_FOUND] no such source.",
        ),
        ("An error occurred while calling o1.load.\n\tat org.x.Y.z(Y.scala:1)", None),
    ],
)
def test_errors_of_spark_are_brief(text: str, said: str | None) -> None:
    """The reason stays, plans and traces go."""
    assert brief(text) == (said or "An error occurred while calling o1.load.")


def test_every_template_is_a_pipeline() -> None:
    """As it is, and with its blanks filled in; what is empty is left out."""
    for name in TEMPLATES:
        plan(parse_text(fill(name, {})), Mode.AVAILABLE_NOW)
    text = fill("archive", {"topics": "a, b", "lake": "./my lake: here"})
    pipeline = parse_text(text)

    assert pipeline.sources["messages"].label == "topic a, b"
    assert pipeline.sinks["lake"].label == "lake ./my lake: here by topic, date, hour"
    assert "since" not in fill("replay", {})
    assert 'since: "2026-01-31T12:00:00Z"' in fill("replay", {"since": "2026-01-31T12:00:00Z"})
    with pytest.raises(ValueError, match="did you mean 'archive'"):
        fill("archiv", {})
    with pytest.raises(ValueError, match="did you mean 'topics'"):
        fill("archive", {"topic": "x"})
    with pytest.raises(ValueError, match="one line"):
        fill("archive", {"topics": "a\nb"})


def test_missing_topics_are_found_and_made() -> None:
    """Sources must be there; sinks too, unless they say how to be made; dead letters are made."""
    pipeline = parse_text(
        """
        sources: {a: {topic: orders}, b: {pattern: "pay.*"}, c: {topic: nowhere, stream: true}}
        transforms: {all: {sql: SELECT * FROM a UNION SELECT * FROM b UNION SELECT * FROM c}}
        expectations:
          a: [{that: x, else: quarantine}]
          b: [{that: x, else: quarantine, topic: bad-payments}]
        sinks:
          made: {from: all, topic: made, partitions: 5}
          missing: {from: all, topic: order}
        """
    )
    new, problems = check_topics(plan(pipeline, Mode.BATCH), {"orders": 2, "payments": 4})
    _, none_like = check_topics(plan(pipeline, Mode.BATCH), {"orders": 2, "nowhere": 1, "order": 1})

    assert [(one.name, one.partitions) for one in new] == [
        ("made", 5),
        ("orders.dlq", 2),
        ("bad-payments", 4),
    ]
    assert [str(one) for one in problems.found] == [
        "sources.c: there is no topic 'nowhere' (there are orders, payments)",
        (
            "sinks.missing: there is no topic 'order'"
            " (did you mean 'orders'?; partitions: 3 would make it)"
        ),
    ]
    assert [str(one) for one in none_like.found] == [
        "sources.b.pattern: no topic is called like that"
    ]


def test_metrics_follow_the_state() -> None:
    """Rows, rate, lag, late rows and broken rules by pipeline and sink; counters are counters."""
    metrics = PipelineMetrics()
    query = QueryState(state="running", rows=10, batch_ms=250, lag_rows=3, batches=2, late_rows=4)
    metrics.update(
        RunState(name="shop", queries={"out": query}, violations={"orders: positive": 2})
    )
    value = metrics.registry.get_sample_value
    labels = {"pipeline": "shop", "sink": "out"}

    assert value("goqueue_pipeline_up", labels) == 1
    assert value("goqueue_pipeline_rows_total", labels) == 10
    assert value("goqueue_pipeline_batches_total", labels) == 2
    assert value("goqueue_pipeline_late_rows_total", labels) == 4
    assert value("goqueue_pipeline_batch_seconds", labels) == 0.25
    assert value("goqueue_pipeline_lag_rows", labels) == 3
    rule = {"pipeline": "shop", "rule": "orders: positive"}
    assert value("goqueue_pipeline_violations_total", rule) == 2
    kinds = {one.name: one.type for one in metrics.registry.collect()}
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        f"goqueue_pipeline_{name}" for name in ("rows", "batches", "late_rows", "violations")
    }


def test_a_report_on_dead_letters_has_the_times_without_any() -> None:
    """The axis of time goes on where nothing died, over the end of a year, too."""
    eve = datetime(2025, 12, 31, 23, 50, tzinfo=UTC)
    line = Line(name=("orders", "REJECTED"), count=5, first=eve, last=eve)
    report = DlqReport(
        dlqs=("orders.dlq",),
        count=5,
        first=eve,
        last=eve + timedelta(minutes=31),
        reasons=(line,),
        groups=(),
        keys=(),
        errors=(),
        step_seconds=300,
        timeline=((eve, "REJECTED", 4), (eve + timedelta(minutes=30), "EXPECTATION", 1)),
    )
    html = dlq_page(report)

    assert report.times == tuple(eve + timedelta(minutes=5 * place) for place in range(7))
    assert html.index("12-31 23:50") < html.index("01-01 00:05") < html.index("01-01 00:20")
    assert replace(report, timeline=()).times == ()


def test_where_only_the_sources_tell_their_numbers_are_added_up() -> None:
    """As through Spark Connect."""
    sources = [
        {"numInputRows": 2, "processedRowsPerSecond": 1.5},
        {"numInputRows": 3, "processedRowsPerSecond": float("nan")},
    ]
    figures = advance(Figures(), {"batchId": 0, "sources": sources})

    assert (figures.rows, figures.batches, figures.rows_per_second) == (5, 1, 1.5)
