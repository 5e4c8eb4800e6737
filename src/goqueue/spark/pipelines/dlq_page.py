"""The report on dead letters as an HTML page."""

from collections.abc import Sequence
from datetime import datetime

from goqueue.base.units import SECOND_MS, format_duration_ms
from goqueue.spark.pipelines.dlq_report import DlqReport, Line
from goqueue.spark.pipelines.report_page import bars, page, paragraph, plot, stacked_bars, table


def dlq_page(report: DlqReport) -> str:
    """Return the page."""
    title = f"Dead letters of {', '.join(report.dlqs) or 'nothing'}"
    if not report.count:
        return page(title, [paragraph("There are none.")])
    assert report.first is not None, "there are some"
    assert report.last is not None, "there are some"
    series: dict[str, dict[datetime, int]] = {}
    for at, reason, count in report.timeline:
        series.setdefault(reason, {})[at] = count
    width = format_duration_ms(report.step_seconds * SECOND_MS)
    by_reason: dict[str, float] = {}
    for line in report.reasons:
        name = " / ".join(line.name)
        by_reason[name] = by_reason.get(name, 0) + line.count
    return page(
        title,
        [
            paragraph(
                f"{report.count:,} dead letters in the log, from {when(report.first)} to"
                f" {when(report.last)} (UTC). Those that went back since are among them."
            ),
            plot(
                f"When they died, by reason (each bar {width})",
                stacked_bars(series, report.times, label="dead"),
            ),
            plot("Where and why", bars(by_reason, label="dead letters")),
            table("By topic and reason", ("topic", "reason", *_COUNTS), _rows(report.reasons)),
            table("By group", ("group", "reason", *_COUNTS), _rows(report.groups)),
            table("By key", ("topic", "key", *_COUNTS), _rows(report.keys)),
            table("By error", ("reason", "error", *_COUNTS), _rows(report.errors)),
        ],
    )


_COUNTS = (">count", "first", "last")


def _rows(lines: Sequence[Line]) -> list[tuple[object, ...]]:
    return [(*line.name, f"{line.count:,}", when(line.first), when(line.last)) for line in lines]


def when(at: datetime) -> str:
    """Return a time to the second."""
    return at.strftime("%Y-%m-%d %H:%M:%S")
