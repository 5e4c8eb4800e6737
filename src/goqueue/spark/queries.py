"""What streaming queries report: their sources by name, how far behind these are, rows dropped.

Shape: calculator. Spark names a source in Python by the class of the JVM that runs it, and has no
metrics for it; the offsets in the report say both.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Progress = Mapping[str, Any]
PartitionOffsets = dict[str, dict[str, int]]

PYTHON_SOURCE: Final = "org.apache.spark.sql.execution.datasources.v2.python."
DROPPED: Final = "numRowsDroppedByWatermark"


def progress(query: "StreamingQuery") -> dict[str, Any] | None:
    """Return the last report of a query as JSON has it, its topics named and measured."""
    last: Any = query.lastProgress
    return None if last is None else measured(json.loads(last.json))


def measured(report: Progress) -> dict[str, Any]:
    """Return a report with names and metrics of topics, and the rows its batch dropped as late."""
    sources = [_measured_source(one) for one in report.get("sources") or ()]
    return {**report, "sources": sources, DROPPED: rows_dropped(report)}


def rows_dropped(report: Progress) -> int:
    """Return how many rows of a micro-batch came later than the watermark and were dropped."""
    return sum(int(one.get(DROPPED) or 0) for one in report.get("stateOperators") or ())


def _measured_source(source: Progress) -> dict[str, Any]:
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or not str(source.get("description")).startswith(PYTHON_SOURCE):
        return dict(source)
    metrics = {**(source.get("metrics") or {}), **behind_latest(end, latest or end)}
    return {**source, "description": f"GoQueue[{', '.join(sorted(end))}]", "metrics": metrics}


def behind_latest(end: PartitionOffsets, latest: PartitionOffsets) -> dict[str, str]:
    """Return how far partitions are behind, by the names Spark's Kafka source has for it."""
    lags = [
        max(offset - end.get(topic, {}).get(partition, 0), 0)
        for topic, parts in latest.items()
        for partition, offset in parts.items()
    ]
    if not lags:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(lags)),
        "maxOffsetsBehindLatest": str(max(lags)),
        "avgOffsetsBehindLatest": str(sum(lags) / len(lags)),
    }


def _offsets(value: object) -> PartitionOffsets | None:
    """Return offsets by topic and partition, or None if a source has others."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return None
    if not isinstance(value, dict) or not value:
        return None
    if not all(
        isinstance(parts, dict) and all(isinstance(offset, int) for offset in parts.values())
        for parts in value.values()
    ):
        return None
    return value
