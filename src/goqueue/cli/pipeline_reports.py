"""``goqueue pipeline dlq-report`` and ``trace-report``: what Spark counts, as tables and pages."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goqueue.cli.failure import Failure
from goqueue.cli.output import Grid, count, print_data, print_grid, remark, say
from goqueue.cli.pipeline_options import Conf, Master, Remote, started
from goqueue.cli.session import Session, command

if TYPE_CHECKING:
    from goqueue.spark.pipelines.dlq_report import DlqReport, Line
    from goqueue.spark.pipelines.trace_report import Latency, TraceReport

Sources = Annotated[
    list[str] | None, typer.Option("-t", "--topic", help="Only of this topic; repeatable.")
]
Html = Annotated[Path | None, typer.Option("--html", help="Write the report to this file, too.")]
Traces = Annotated[Path, typer.Argument(help="A file of traces, or DATA/traces/traces.")]


def register(pipeline: typer.Typer) -> None:
    """Add the commands."""
    command(pipeline, "dlq-report")(dlq_report)
    command(pipeline, "trace-report")(trace_report)


def dlq_report(
    session: Session,
    *,
    topic: Sources = None,
    html: Html = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Tell why messages died, where and since when: by reason, group, key and error.

    With --html also as one file with plots, which needs nothing else to be looked at.
    """
    with session.connect() as client:
        from goqueue.spark.pipelines.letter_names import dlqs_of  # noqa: PLC0415

        dlqs = dlqs_of(client, topic or [])
    if not dlqs:
        session.show({"count": 0}, Grid(columns=(), rows=(), empty="no dead letters"))
        return
    with started(session, None, master=master, remote=remote, conf=conf) as spark:
        from goqueue.spark.pipelines.dlq_report import report  # noqa: PLC0415 - loads PySpark

        found = report(spark.around, dlqs)
    if html is not None:
        from goqueue.spark.pipelines.dlq_page import dlq_page  # noqa: PLC0415 - loads matplotlib

        html.write_text(dlq_page(found), encoding="utf-8")
    _tell_report(session, found)
    if html is not None and session.is_table:
        remark(f"the report is in {os.fspath(html)}")


def _tell_report(session: Session, found: "DlqReport") -> None:
    tables: tuple[tuple[str, tuple[str, str], Sequence[Line]], ...] = (
        ("reasons", ("TOPIC", "REASON"), found.reasons),
        ("groups", ("GROUP", "REASON"), found.groups),
        ("keys", ("TOPIC", "KEY"), found.keys),
        ("errors", ("REASON", "ERROR"), found.errors),
    )
    if not session.is_table:
        data: dict[str, object] = {
            "topics": list(found.dlqs),
            "count": found.count,
            "first": None if found.first is None else found.first.isoformat(),
            "last": None if found.last is None else found.last.isoformat(),
        }
        for name, columns, lines in tables:
            data[name] = [
                {
                    **dict(zip([one.lower() for one in columns], line.name, strict=True)),
                    "count": line.count,
                    "first": line.first.isoformat(),
                    "last": line.last.isoformat(),
                }
                for line in lines
            ]
        print_data(session.output, data)
        return
    say(f"{count(found.count, 'dead letter')} of {', '.join(found.dlqs)}")
    for _, columns, lines in tables:
        say()
        rows = [
            (*line.name, f"{line.count:,}", f"{line.first:%F %T}", f"{line.last:%F %T}")
            for line in lines
        ]
        print_grid(Grid(columns=(*columns, ">COUNT", "FIRST", "LAST"), rows=rows))


def trace_report(
    session: Session,
    traces: Traces,
    *,
    html: Html = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
) -> None:
    """Tell how long messages take, from publish to ack and stage by stage, by topic.

    From the files a broker writes with tracing.exporters=file. With --html also as one file.
    """
    if not traces.exists() or (traces.is_dir() and not list(traces.glob("*.json"))):
        raise Failure(
            f"there are no traces at {traces}",
            code="no_traces",
            hint="`goqueue serve --set tracing.exporters=file` writes them",
        )
    with started(session, None, master=master, remote=remote, conf=conf) as spark:
        from goqueue.spark.pipelines.trace_report import (  # noqa: PLC0415 - loads PySpark
            trace_report as count_traces,
        )

        found = count_traces(spark.around.spark, [str(traces.resolve())])
    if html is not None:
        from goqueue.spark.pipelines.trace_page import trace_page  # noqa: PLC0415

        html.write_text(trace_page(found), encoding="utf-8")
    _tell_traces(session, found)
    if html is not None and session.is_table:
        remark(f"the report is in {os.fspath(html)}")


def _tell_traces(session: Session, found: "TraceReport") -> None:
    tables = (("end_to_end", "group", found.end_to_end), ("stages", "event", found.stages))
    if not session.is_table:
        data: dict[str, object] = {
            "spans": found.spans,
            "traces": found.traces,
            "unreadable": found.unreadable,
        }
        for name, noun, lines in tables:
            data[name] = [{"topic": one.topic, noun: one.what, **_figures(one)} for one in lines]
        print_data(session.output, data)
        return
    say(f"{count(found.spans, 'span')} of {count(found.traces, 'message')}")
    if found.unreadable:
        remark(f"{count(found.unreadable, 'line')} could not be read")
    for _, noun, lines in tables:
        say()
        columns = ("TOPIC", noun.upper(), ">COUNT", ">P50 MS", ">P90 MS", ">P99 MS", ">MAX MS")
        rows = [
            (one.topic, one.what, *(f"{value:,}" for value in _figures(one).values()))
            for one in lines
        ]
        print_grid(Grid(columns=columns, rows=rows, empty="nothing was measured"))


def _figures(one: "Latency") -> dict[str, float]:
    return {
        "count": one.count,
        "p50_ms": round(one.p50_ms, 3),
        "p90_ms": round(one.p90_ms, 3),
        "p99_ms": round(one.p99_ms, 3),
        "max_ms": round(one.max_ms, 3),
    }
