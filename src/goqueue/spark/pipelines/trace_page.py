"""The report on traces as an HTML page."""

from collections.abc import Sequence
from typing import Final

from goqueue.spark.pipelines.report_page import bars, page, paragraph, plot, table
from goqueue.spark.pipelines.trace_report import Latency, TraceReport

_COLUMNS: Final = (">count", ">p50 ms", ">p90 ms", ">p99 ms", ">max ms")
TOPICS_PLOTTED_MAX: Final = 6


def trace_page(report: TraceReport) -> str:
    """Return the page."""
    unreadable = f" {report.unreadable:,} lines were no spans." if report.unreadable else ""
    sections = [
        paragraph(f"{report.spans:,} spans of {report.traces:,} messages.{unreadable}"),
        table("From publish to ack", ("topic", "group", *_COLUMNS), _rows(report.end_to_end)),
        table("Stage by stage", ("topic", "event", *_COLUMNS), _rows(report.stages)),
    ]
    topics = list(dict.fromkeys(one.topic for one in report.stages))
    for topic in topics[:TOPICS_PLOTTED_MAX]:
        values = {one.what: one.p99_ms for one in report.stages if one.topic == topic}
        sections.append(plot(f"p99 of {topic}, stage by stage", bars(values, label="ms")))
    return page("How long messages take", sections)


def _rows(lines: Sequence[Latency]) -> list[tuple[object, ...]]:
    return [
        (
            one.topic,
            one.what,
            f"{one.count:,}",
            *(f"{value:,.2f}" for value in (one.p50_ms, one.p90_ms, one.p99_ms, one.max_ms)),
        )
        for one in lines
    ]
