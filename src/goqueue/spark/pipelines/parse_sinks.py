"""The sinks of a pipeline file."""

from typing import Final

from goqueue.base.limits import PARTITIONS_MAX
from goqueue.spark.pipelines.fields import Fields
from goqueue.spark.pipelines.parse_sources import check_topic, one_of
from goqueue.spark.pipelines.spec import (
    ConsoleSink,
    Delivery,
    DeltaSink,
    LakeSink,
    OutputMode,
    Sink,
    TableSink,
    TopicSink,
)

KINDS: Final = ("topic", "lake", "table", "delta", "console")
MESSAGE_COLUMNS: Final = ("key", "value", "headers", "priority")
"""What of a row becomes part of a message unless the sink names its columns."""
SINK_COLUMNS: Final = (*MESSAGE_COLUMNS, "partition", "timestamp", "deliver_at")
CONSOLE_ROWS_MAX: Final = 10_000


def parse_sink(fields: Fields, name: str) -> Sink | None:
    """Return a sink; which kind follows from the field that says where it is."""
    kind = one_of(fields, KINDS, noun="a sink")
    if kind is None:
        return None
    source = fields.text("from", required=True)
    mode = fields.choice("output", OutputMode, OutputMode.APPEND)
    sink: Sink
    if kind == "topic":
        sink = _topic(fields, name, source, mode)
    elif kind == "lake":
        sink = LakeSink(
            name=name,
            input=source,
            path=fields.text("lake", required=True),
            partition_by=fields.texts("partition_by"),
            compact=fields.flag("compact", default=True),
            output_mode=mode,
        )
    elif kind == "table":
        sink = _table(fields, name, source, mode)
    elif kind == "delta":
        sink = DeltaSink(
            name=name,
            input=source,
            path=fields.text("delta", required=True),
            partition_by=fields.texts("partition_by"),
            output_mode=mode,
        )
    else:
        sink = _console(fields, name, source, mode)
    if kind == "lake" and mode is not OutputMode.APPEND:
        fields.problems.add(
            fields.at("output"), "a lake only grows", "use a table: to keep one row"
        )
    fields.finish(KINDS)
    return sink


def _topic(fields: Fields, name: str, source: str, mode: OutputMode) -> TopicSink:
    topic = fields.text("topic", required=True)
    if topic and topic != "*":
        check_topic(topic, fields.at("topic"), fields.problems)
    columns = fields.texts("columns")
    for column in columns:
        if column not in SINK_COLUMNS:
            fields.problems.unknown(fields.at("columns"), "column", column, SINK_COLUMNS)
    if topic == "*" and fields.has("partitions"):
        fields.problems.add(fields.at("partitions"), "is for one topic, not for *")
    return TopicSink(
        name=name,
        input=source,
        topic=topic,
        key=fields.sql("key"),
        value=fields.sql("value"),
        headers=fields.sql("headers"),
        columns=columns,
        partitions=fields.number("partitions", least=1, most=PARTITIONS_MAX),
        delivery=fields.choice("delivery", Delivery, Delivery.EXACTLY_ONCE),
        output_mode=mode,
    )


def _table(fields: Fields, name: str, source: str, mode: OutputMode) -> TableSink:
    if mode is OutputMode.COMPLETE:
        fields.problems.add(fields.at("output"), "a table takes append or update")
    return TableSink(
        name=name,
        input=source,
        path=fields.text("table", required=True),
        key=fields.texts("key", required=True),
        latest_by=fields.texts("latest_by", required=True),
        delete_when=fields.sql("delete_when"),
        output_mode=mode,
    )


def _console(fields: Fields, name: str, source: str, mode: OutputMode) -> ConsoleSink:
    if fields.raw("console") is not True:
        fields.problems.add(fields.at("console"), "must be true")
    return ConsoleSink(
        name=name,
        input=source,
        rows=fields.number("rows", least=1, most=CONSOLE_ROWS_MAX, default=20),
        output_mode=mode,
    )
