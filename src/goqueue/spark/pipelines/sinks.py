"""Where rows go: topics, lakes, tables, Delta and the terminal, as streams and as batches."""

import json
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from goqueue.spark.delta import delta_missing
from goqueue.spark.pipelines.bind import Surroundings, resolve
from goqueue.spark.pipelines.lake import Lake, LakeError, Layout
from goqueue.spark.pipelines.parse_sinks import MESSAGE_COLUMNS
from goqueue.spark.pipelines.spec import (
    ConsoleSink,
    Delivery,
    DeltaSink,
    LakeSink,
    Mode,
    OutputMode,
    Sink,
    TableSink,
    TopicSink,
)
from goqueue.spark.pipelines.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DELTA_MISSING: Final = "DATA_SOURCE_NOT_FOUND"
WRITERS_AT_ONCE: Final = 32
"""Folders a task writes to side by side; only beyond them rows are sorted by folder first."""

SESSION_SETTINGS: Final = {
    # Days and hours of folders are the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": str(WRITERS_AT_ONCE),
    "spark.sql.streaming.stopTimeout": "60s",
    # Lag is told while nothing comes, too.
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
}
"""What the sinks need of a session; they can be set while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and how a sink writes."""

    around: Surroundings
    pipeline: str
    folder: str
    checkpoint: Path
    mode: Mode
    trigger: str


def prepare_session(spark: "SparkSession") -> None:
    """Set what the sinks need."""
    for name, value in SESSION_SETTINGS.items():
        spark.conf.set(name, value)


def check_sink(sink: Sink, rows: "DataFrame") -> "DataFrame":
    """Return the rows as the sink writes them, or raise saying why it cannot."""
    match sink:
        case TopicSink():
            return messages(sink, rows)
        case LakeSink():
            return _with_columns(rows, sink.partition_by)
        case TableSink():
            _local(sink.path)
            return _with_columns(rows, (*sink.key, *sink.latest_by))
        case DeltaSink():
            _check_delta(rows)
            return _with_columns(rows, sink.partition_by)
        case ConsoleSink():
            return rows


def start(sink: Sink, rows: "DataFrame", place: Place) -> "StreamingQuery":
    """Start the query of a sink."""
    writer = streamed(check_sink(sink, rows), sink.name, place)
    return _aimed(writer.outputMode(sink.output_mode.value), sink, place).start()


def streamed(rows: "DataFrame", name: str, place: Place) -> "DataStreamWriter":
    """Return what writes a stream, yet without a place to write to."""
    writer = rows.writeStream.queryName(f"{place.pipeline}.{name}").option(
        "checkpointLocation", str(place.checkpoint)
    )
    if place.mode is Mode.AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=place.trigger)


def write_once(sink: Sink, rows: "DataFrame", place: Place, *, writer: str, batch: int) -> None:
    """Write a batch of a stream to a sink, unless it has had it from this writer."""
    rows = check_sink(sink, rows)
    match sink:
        case TopicSink():
            send_once(sink, rows, _topic_options(sink, place), writer=writer, batch=batch)
        case LakeSink():
            path = Path(resolve(sink.path, place.folder))
            _add_to_lake(Lake(path), sink, rows, writer=writer, batch=batch)
        case TableSink():
            _merge(sink, rows, resolve(sink.path, place.folder), writer=writer, batch=batch)
        case ConsoleSink():
            sys.stdout.write(f"batch {batch} of {sink.name}\n")
            rows.show(sink.rows, truncate=False)
        case DeltaSink():
            raise AssertionError("Delta has a query of its own")


def _aimed(writer: "DataStreamWriter", sink: Sink, place: Place) -> "DataStreamWriter":
    path = "" if isinstance(sink, TopicSink | ConsoleSink) else resolve(sink.path, place.folder)
    match sink:
        case TopicSink():
            return _aimed_at_topic(writer, sink, place)
        case LakeSink():
            if "://" in path:
                return writer.format("parquet").option("path", path).partitionBy(*sink.partition_by)
            return writer.foreachBatch(lake_batches(sink, path, place.checkpoint))
        case TableSink():
            return writer.foreachBatch(table_batches(sink, path, place.checkpoint))
        case DeltaSink():
            return writer.format("delta").option("path", path).partitionBy(*sink.partition_by)
        case ConsoleSink():
            return writer.format("console").option("numRows", sink.rows).option("truncate", "false")


def write(sink: Sink, rows: "DataFrame", place: Place) -> None:
    """Write a batch to a sink, once."""
    rows = check_sink(sink, rows)
    path = "" if isinstance(sink, TopicSink | ConsoleSink) else resolve(sink.path, place.folder)
    match sink:
        case TopicSink():
            rows.write.format("goqueue").mode("append").options(
                **_topic_options(sink, place)
            ).save()
        case LakeSink():
            if "://" in path:
                rows.write.partitionBy(*sink.partition_by).mode("append").parquet(path)
            else:
                _add_to_lake(Lake(Path(path)), sink, rows, writer=uuid.uuid4().hex, batch=0)
        case TableSink():
            Table(Path(path)).replace(
                uuid.uuid4().hex, 0, lambda _, target: _write_latest(sink, rows, target)
            )
        case DeltaSink():
            rows.write.format("delta").partitionBy(*sink.partition_by).mode("append").save(path)
        case ConsoleSink():
            rows.show(sink.rows, truncate=False)


# Topics.


def messages(sink: TopicSink, rows: "DataFrame") -> "DataFrame":
    """Return rows as messages: an expression or column for each part, JSON where there is none."""
    wanted = sink.columns or MESSAGE_COLUMNS
    there = set(rows.columns)
    parts: dict[str, Column] = {}
    if sink.value:
        parts["value"] = _bytes(rows, sink.value)
    elif "value" in there:
        parts["value"] = _bytes(rows, "value")
    else:
        row = F.struct(*[F.col(f"`{name}`") for name in rows.columns])
        parts["value"] = F.to_json(row).cast("binary")
    if sink.key or ("key" in there and "key" in wanted):
        parts["key"] = _bytes(rows, sink.key or "key")
    if sink.headers or ("headers" in there and "headers" in wanted):
        parts["headers"] = F.expr(sink.headers or "headers").cast("map<string,binary>")
    for name in wanted:
        if name not in parts and name in there and name != "value":
            parts[name] = F.col(name)
    if sink.topic == "*":
        parts["topic"] = F.col("topic")
    return rows.select(*[column.alias(name) for name, column in parts.items()])


def _bytes(rows: "DataFrame", expression: str) -> "Column":
    """Return an expression as bytes; what is neither text nor bytes is written as text."""
    kind = rows.select(F.expr(expression)).schema[0].dataType.simpleString()
    column = F.expr(expression)
    if kind == "binary":
        return column
    if kind.startswith(("struct", "map", "array")):
        return F.to_json(column).cast("binary")
    return column.cast("string").cast("binary")


def _topic_options(sink: TopicSink, place: Place) -> dict[str, str]:
    options = {**place.around.broker_options(), "delivery": sink.delivery.value}
    return options if sink.topic == "*" else {**options, "topic": sink.topic}


def _aimed_at_topic(
    writer: "DataStreamWriter", sink: TopicSink, place: Place
) -> "DataStreamWriter":
    options = _topic_options(sink, place)
    if sink.output_mode is OutputMode.APPEND:
        return writer.format("goqueue").options(**options)
    return writer.foreachBatch(topic_batches(sink, options, place.checkpoint))


def topic_batches(
    sink: TopicSink, options: dict[str, str], checkpoint: Path
) -> Callable[["DataFrame", int], None]:
    """Return what sends micro-batches of updates, each once.

    Spark lets a source in Python be written by a stream in no output mode but append.
    """

    def send(rows: "DataFrame", batch: int) -> None:
        send_once(sink, rows, options, writer=query_id(rows, checkpoint), batch=batch)

    return send


def send_once(
    sink: TopicSink, rows: "DataFrame", options: dict[str, str], *, writer: str, batch: int
) -> None:
    """Send a batch to a topic; again it changes nothing, if the sink is one for that."""
    once = {}
    if sink.delivery is Delivery.EXACTLY_ONCE:
        once = {"txnAppId": writer, "txnVersion": str(batch)}
    rows.write.format("goqueue").mode("append").options(**options, **once).save()


# Lakes.


def lake_batches(sink: LakeSink, path: str, checkpoint: Path) -> Callable[["DataFrame", int], None]:
    """Return what adds micro-batches to a lake, each once."""

    def add(rows: "DataFrame", batch: int) -> None:
        lake = Lake(Path(path))
        _add_to_lake(lake, sink, rows, writer=query_id(rows, checkpoint), batch=batch)

    return add


def _add_to_lake(lake: Lake, sink: LakeSink, rows: "DataFrame", *, writer: str, batch: int) -> None:
    columns = json.loads(rows.schema.json())
    lake.prepare(Layout(columns=columns, partition_by=list(sink.partition_by)))

    def stage(folder: Path) -> None:
        output = rows.write.mode("overwrite").option("compression", "zstd")
        if sink.partition_by:
            output = output.partitionBy(*sink.partition_by)
        output.parquet(str(folder))

    lake.commit(writer, batch, stage)


def query_id(rows: "DataFrame", checkpoint: Path) -> str:
    """Return who writes: the id Spark keeps in the checkpoint. A reset makes another one."""
    try:
        found = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    except Exception:  # noqa: BLE001 - a remote session has no context
        found = None
    if not found:
        try:
            found = json.loads((checkpoint / "metadata").read_bytes())["id"]
        except (OSError, ValueError, KeyError) as error:
            raise LakeError(f"{checkpoint} does not say whose it is") from error
    return str(found).replace("-", "")


# Tables.


def table_batches(
    sink: TableSink, path: str, checkpoint: Path
) -> Callable[["DataFrame", int], None]:
    """Return what merges micro-batches into a table."""

    def merge(rows: "DataFrame", batch: int) -> None:
        _merge(sink, rows, path, writer=query_id(rows, checkpoint), batch=batch)

    return merge


def _merge(sink: TableSink, rows: "DataFrame", path: str, *, writer: str, batch: int) -> None:
    def build(current: Path | None, target: Path) -> None:
        before = None if current is None else rows.sparkSession.read.parquet(str(current))
        together = rows if before is None else before.unionByName(rows, allowMissingColumns=True)
        _write_latest(sink, together, target)

    Table(Path(path)).replace(writer, batch, build)


def _write_latest(sink: TableSink, rows: "DataFrame", target: Path) -> None:
    latest(sink, rows).write.mode("overwrite").option("compression", "zstd").parquet(str(target))


def latest(sink: TableSink, rows: "DataFrame") -> "DataFrame":
    """Return the last row of each key, without those that say it is deleted."""
    whole = F.struct(*[F.col(f"`{name}`") for name in rows.columns])
    order = F.struct(*[F.expr(one) for one in sink.latest_by])
    found = rows.groupBy(*sink.key).agg(F.max_by(whole, order).alias("_row")).select("_row.*")
    if sink.delete_when:
        found = found.where(~F.coalesce(F.expr(f"({sink.delete_when})"), F.lit(False)))  # noqa: FBT003
    return found


# Checks.


def _with_columns(rows: "DataFrame", names: tuple[str, ...]) -> "DataFrame":
    for name in names:
        rows.select(F.expr(name))
    return rows


def _local(path: str) -> None:
    if "://" in path:
        raise LakeError("a table lies on a local or mounted file system")


def _check_delta(rows: "DataFrame") -> None:
    try:
        rows.sparkSession.read.format("delta").load("/goqueue/nowhere")
    except Exception as error:
        if DELTA_MISSING in str(error):
            raise LakeError(delta_missing()) from error
