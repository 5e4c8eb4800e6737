"""How long messages take, stage by stage and from end to end, from the files of traces."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from goqueue.core.tracing.kinds import ACKED, RANKS, RECEIVED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PERCENTILES: Final = (0.5, 0.9, 0.99)
ACCURACY: Final = 10_000
LINES_MAX: Final = 1_000
"""Most topics with their stages; the busiest are told."""
_NS_PER_MS: Final = 1_000_000
_SPAN: Final = (
    "trace_id STRING, event_type STRING, timestamp_ns BIGINT, topic STRING, partition INT,"
    " offset BIGINT, consumer_group STRING, duration_ns BIGINT, error STRING, _corrupt STRING"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long something took, in milliseconds."""

    topic: str
    what: str
    """An event, or the group that acked."""
    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """All tables of a report."""

    spans: int
    traces: int
    unreadable: int
    """Lines that are no spans, such as one that is just being written."""
    stages: tuple[Latency, ...]
    """By topic and event: the work or the wait behind it."""
    end_to_end: tuple[Latency, ...]
    """By topic and group: from the request that published to the ack."""


def trace_report(spark: "SparkSession", paths: Sequence[str]) -> TraceReport:
    """Read files of traces and work out the latencies in them."""
    rows = (
        spark.read.schema(_SPAN)
        .option("columnNameOfCorruptRecord", "_corrupt")
        .json(list(paths))
        .cache()
    )
    try:
        return _count(rows)
    finally:
        rows.unpersist()


def _count(rows: "DataFrame") -> TraceReport:
    good = F.col("_corrupt").isNull() & F.col("event_type").isNotNull()
    whole: Any = rows.agg(
        F.count_if(good).alias("spans"),
        F.count_if(~good).alias("unreadable"),
        F.count_distinct(F.when(good, F.col("trace_id"))).alias("traces"),
    ).first()
    spans = rows.where(good).drop("_corrupt")
    return TraceReport(
        spans=int(whole["spans"]),
        traces=int(whole["traces"]),
        unreadable=int(whole["unreadable"]),
        stages=stages(spans),
        end_to_end=end_to_end(spans),
    )


def stages(spans: "DataFrame") -> tuple[Latency, ...]:
    """Return the latencies of each event of each topic, in the order of a message's life."""
    timed = spans.where("duration_ns IS NOT NULL")
    found = _latencies(timed, F.col("duration_ns"), "topic", "event_type")
    return tuple(sorted(found, key=lambda one: (one.topic, RANKS.get(one.what, len(RANKS)))))


def end_to_end(spans: "DataFrame") -> tuple[Latency, ...]:
    """Return how long it took until a message was acked, by topic and group."""
    place = ("topic", "partition", "offset")
    began = (
        spans.where(F.col("event_type") == RECEIVED)
        .groupBy(*place)
        .agg(F.min("timestamp_ns").alias("began_ns"))
    )
    acked = spans.where(F.col("event_type") == ACKED)
    took = acked.join(began, list(place)).withColumn(
        "took_ns", F.greatest(F.col("timestamp_ns") - F.col("began_ns"), F.lit(0))
    )
    group = F.coalesce(F.col("consumer_group"), F.lit(""))
    found = _latencies(took.withColumn("g", group), F.col("took_ns"), "topic", "g")
    return tuple(sorted(found, key=lambda one: (one.topic, one.what)))


def _latencies(rows: "DataFrame", value: "Column", *by: str) -> list[Latency]:
    counted = rows.groupBy(*by).agg(
        F.count(F.lit(1)).alias("n"),
        F.percentile_approx(value, list(PERCENTILES), ACCURACY).alias("p"),
        F.max(value).alias("most"),
    )
    found = counted.orderBy(F.desc("n")).limit(LINES_MAX).collect()
    return [
        Latency(
            topic=str(row[by[0]]),
            what=str(row[by[1]]),
            count=int(row["n"]),
            p50_ms=row["p"][0] / _NS_PER_MS,
            p90_ms=row["p"][1] / _NS_PER_MS,
            p99_ms=row["p"][2] / _NS_PER_MS,
            max_ms=row["most"] / _NS_PER_MS,
        )
        for row in found
    ]
