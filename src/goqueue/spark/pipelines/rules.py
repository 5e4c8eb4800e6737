"""Expectations in Spark: counting the rows that break a rule, keeping the others, burying them.

A dead letter is the message as it was, with its story in one more header, as the broker's own are.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from goqueue.base.limits import HEADERS_BYTES_MAX
from goqueue.core.dlq.names import DLQ_SUFFIX, dlq_of
from goqueue.core.dlq.record import STORY
from goqueue.core.record.headers import OWN_HEADERS_BYTES
from goqueue.spark.pipelines.problems import PipelineError, Problem
from goqueue.spark.pipelines.spec import Expectation, Otherwise

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON: Final = "EXPECTATION"
MESSAGE_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value")
ROW_CHARACTERS: Final = 300
ERROR_CHARACTERS: Final = 500
HEADERS_ROOM_BYTES: Final = HEADERS_BYTES_MAX - OWN_HEADERS_BYTES


def broken(rule: Expectation) -> "Column":
    """Return whether a row breaks a rule; what is neither true nor false does."""
    return ~F.coalesce(F.expr(f"({rule.rule})").cast("boolean"), F.lit(False))  # noqa: FBT003


def counts(rules: Sequence[Expectation]) -> list["Column"]:
    """Return what is counted: the rows, and those that break each rule."""
    return [
        F.count(F.lit(1)).alias("n"),
        *(F.count_if(broken(rule)).alias(f"v_{place}") for place, rule in enumerate(rules)),
    ]


def kept(rows: "DataFrame", part: str, rules: Sequence[Expectation]) -> "DataFrame":
    """Return the rows that keep all rules; one that breaks a rule that fails ends the query."""
    if not rules:
        return rows
    passing = F.lit(True)  # noqa: FBT003
    for rule in rules:
        if rule.otherwise is not Otherwise.FAIL:
            passing = passing & ~broken(rule)
    condition = None
    for rule in rules:
        if rule.otherwise is Otherwise.FAIL:
            error = F.raise_error(_complaint(rows, part, rule)).cast("boolean")
            condition = (
                F.when(broken(rule), error)
                if condition is None
                else condition.when(broken(rule), error)
            )
    return rows.where(passing if condition is None else condition.otherwise(passing))


def _complaint(rows: "DataFrame", part: str, rule: Expectation) -> "Column":
    row = F.to_json(F.struct(*[F.col(f"`{name}`") for name in rows.columns]))
    return F.concat(
        F.lit(f"expectation {rule.name!r} of {part} is broken ({rule.rule}) by "),
        F.substring(row, 1, ROW_CHARACTERS),
    )


def quarantined(
    rows: "DataFrame",
    part: str,
    rules: Sequence[Expectation],
    *,
    pipeline: str,
    topics: Sequence[str],
) -> "DataFrame":
    """Return the rows that break a rule of quarantine as messages, each with its topic."""
    chosen = [rule for rule in rules if rule.otherwise is Otherwise.QUARANTINE]
    is_meant = F.lit(False)  # noqa: FBT003
    for rule in chosen:
        is_meant = is_meant | broken(rule)
    rows = rows.where(is_meant)
    if set(MESSAGE_COLUMNS) <= set(rows.columns):
        return _letters(rows, chosen, pipeline=pipeline, topics=topics)
    homeless = [place for place, rule in enumerate(rules) if rule in chosen and not rule.topic]
    if homeless:
        raise PipelineError(
            [
                Problem(
                    path=f"expectations.{part}[{place}]",
                    message="its rows are no messages any more, so they cannot be dead letters",
                    hint=f"keep {', '.join(MESSAGE_COLUMNS)} in {part}, or name a topic:",
                )
                for place in homeless
            ]
        )
    return _plain(rows, chosen, pipeline=pipeline)


def _letters(
    rows: "DataFrame", rules: Sequence[Expectation], *, pipeline: str, topics: Sequence[str]
) -> "DataFrame":
    story = F.to_json(
        F.struct(
            F.col("topic").alias("original_topic"),
            F.col("partition").alias("original_partition"),
            F.col("offset").alias("original_offset"),
            F.unix_micros("timestamp").alias("original_timestamp_us"),
            F.lit(REASON).alias("reason"),
            _error(rules).alias("last_error"),
            F.lit(pipeline).alias("last_group"),
            F.lit("pipeline").alias("last_consumer"),
            F.unix_millis(F.current_timestamp()).alias("dlq_time_ms"),
        )
    ).cast("binary")
    none = F.expr("CAST(map() AS MAP<STRING, BINARY>)")
    headers = F.coalesce(F.col("headers"), none) if "headers" in rows.columns else none
    own = F.map_filter(headers, lambda name, _: name != STORY)
    told = F.map_concat(own, F.create_map(F.lit(STORY), story))
    size = F.aggregate(
        F.map_entries(told),
        F.lit(2),
        lambda total, entry: (
            total
            + 4
            + F.octet_length(entry["key"]).cast("int")
            + F.octet_length(entry["value"]).cast("int")
        ),
    )
    columns = [
        _destination(rules, F.col("topic"), topics).alias("topic"),
        F.col("key"),
        F.col("value"),
        # Where the story has no room, the message itself matters more.
        F.when(size <= HEADERS_ROOM_BYTES, told).otherwise(own).alias("headers"),
    ]
    if "priority" in rows.columns:
        columns.append(F.col("priority"))
    return rows.select(*columns)


def _plain(rows: "DataFrame", rules: Sequence[Expectation], *, pipeline: str) -> "DataFrame":
    """Return rows that are no messages as JSON, with the reason in headers."""
    value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in rows.columns])).cast("binary")
    headers = F.create_map(
        *(F.lit("goqueue-reason"), F.lit(REASON).cast("binary")),
        *(F.lit("goqueue-error"), _error(rules).cast("binary")),
        *(F.lit("goqueue-pipeline"), F.lit(pipeline).cast("binary")),
    )
    return rows.select(
        _destination(rules, F.lit(None).cast("string"), ()).alias("topic"),
        value.alias("value"),
        headers.alias("headers"),
    )


def _error(rules: Sequence[Expectation]) -> "Column":
    broken_ones = [
        F.when(broken(rule), F.lit(f"{rule.name}: not ({rule.rule})"[:ERROR_CHARACTERS]))
        for rule in rules
    ]
    return F.substring(F.concat_ws("; ", *broken_ones), 1, ERROR_CHARACTERS)


def _destination(rules: Sequence[Expectation], source: "Column", topics: Sequence[str]) -> "Column":
    """Return where a row goes: the topic of the first rule it breaks, or the dead letters."""
    letters = F.concat(source, F.lit(DLQ_SUFFIX))
    for topic in topics:
        if dlq_of(topic) != f"{topic}{DLQ_SUFFIX}":
            letters = F.when(source == topic, F.lit(dlq_of(topic))).otherwise(letters)
    found = letters
    for rule in reversed(rules):
        found = F.when(broken(rule), F.lit(rule.topic) if rule.topic else letters).otherwise(found)
    return found
