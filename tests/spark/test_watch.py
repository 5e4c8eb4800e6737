"""A session tells of queries that fail, and counts what they drop."""

import logging
import queue
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from goqueue.client.sync import Client
from goqueue.spark import progress
from goqueue.spark.watch import WATCH
from tests.acceptance.served import Served

SECONDS_MAX = 200


class Told(logging.Handler):
    """Lines that were logged, to be waited for: events come later than a query's own state."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put(record.getMessage())

    def next_line(self) -> str:
        return self._lines.get(timeout=SECONDS_MAX)


@pytest.fixture
def told() -> Iterator[Told]:
    handler = Told()
    logging.getLogger("goqueue.spark").addHandler(handler)
    yield handler
    logging.getLogger("goqueue.spark").removeHandler(handler)


def start(
    spark: SparkSession, broker: Served, source: str, checkpoint: str, *, name: str, **options: str
) -> StreamingQuery:
    frame = spark.readStream.format("goqueue").options(servers=broker.address, subscribe=source)
    return (
        frame.option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format("goqueue")
        .queryName(name)
        .options(servers=broker.address, checkpointLocation=checkpoint, **options)
        .trigger(availableNow=True)
        .start()
    )


def test_a_query_that_fails_is_told(
    spark: SparkSession,
    broker: Served,
    topic: str,
    publish: Callable[..., None],
    checkpoint: str,
    told: Told,
) -> None:
    """Also where nobody waits for it: with its name, the reason and what to do."""
    publish(5)

    query = start(spark, broker, topic, checkpoint, name="lost", topic=f"{topic}.none")

    line = told.next_line()
    assert line.startswith("query lost failed and has ended: TopicNotFoundError: topic not found:")
    assert line.endswith("make it, or set createTopic to a number of partitions")
    with pytest.raises(StreamingQueryException, match="topic not found"):
        query.awaitTermination(SECONDS_MAX)


def test_a_sink_makes_its_topic_if_asked_to(
    spark: SparkSession,
    broker: Served,
    client: Client,
    topic: str,
    publish: Callable[..., None],
    checkpoint: str,
) -> None:
    publish(5)

    query = start(
        spark, broker, topic, checkpoint, name="made", topic=f"{topic}.new", createTopic="2"
    )
    query.awaitTermination(SECONDS_MAX)

    found = progress(query)
    assert sorted(message.value or b"" for message in client.read(f"{topic}.new")) == [
        b"%d" % number for number in range(5)
    ]
    assert len(client.describe_topic(f"{topic}.new").partitions) == 2
    assert found is not None
    assert found["sources"][0]["description"] == f"GoQueue[{topic}]"
    assert found["sources"][0]["metrics"]["maxOffsetsBehindLatest"] == "0"


def test_rows_that_come_too_late_are_counted(
    spark: SparkSession,
    broker: Served,
    topic: str,
    publish: Callable[..., None],
    checkpoint: str,
    told: Told,
) -> None:
    """A watermark drops them in silence, from the batch behind the one that has moved it on."""
    publish(12, keys=1, timestamp=datetime(2026, 1, 2, tzinfo=UTC))
    publish(4, keys=1, timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    frame = spark.readStream.format("goqueue").options(servers=broker.address, **options).load()

    query = (
        frame.withWatermark("timestamp", "1 hour")
        .groupBy("timestamp", "key")
        .count()
        .writeStream.format("noop")
        .queryName("late")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(SECONDS_MAX)
    first, last = told.next_line(), told.next_line()

    assert WATCH.rows_dropped(query) > 0
    assert "came later than the watermark and were dropped" in first
    assert last == f"query late: {WATCH.rows_dropped(query)} rows were dropped as too late in all"
