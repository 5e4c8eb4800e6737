"""Topics as DataFrames, through a real Spark from a real broker."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import pyspark_goqueue
from goqueue.client.sync import Client
from goqueue.spark import session
from tests.acceptance.served import Served

Publish = Callable[..., None]


def load(spark: SparkSession, broker: Served, **options: object) -> DataFrame:
    reader = spark.read.format("goqueue").option("servers", broker.address)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_every_column_reaches_spark(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    """A message arrives with all it has, delayed ones included and with their time."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    with client.producer(topic) as producer:
        producer.send(b"plain", key=b"k", partition=1, timestamp=moment)
        producer.send(
            None, headers={"a": b"1", "b": "text"}, priority="high", partition=1, timestamp=moment
        )
        later = producer.send(b"later", partition=1, delay=timedelta(hours=1))
    rows = load(spark, broker, subscribe=topic).orderBy("offset").collect()

    plain, tombstone, delayed = rows
    assert (plain.topic, plain.partition, plain.offset) == (topic, 1, 0)
    assert (plain.key, plain.value, plain.headers, plain.priority) == (b"k", b"plain", None, 2)
    assert plain.timestamp.replace(tzinfo=UTC) == moment
    assert (tombstone.value, tombstone.headers) == (None, {"a": b"1", "b": b"text"})
    assert tombstone.priority != plain.priority
    assert delayed.offset == later.result().offset
    assert delayed.deliver_at.replace(tzinfo=UTC) > datetime.now(UTC)


def test_offsets_times_and_tasks_are_chosen(
    spark: SparkSession, broker: Served, client: Client, topic: str, publish: Publish
) -> None:
    middle = datetime.now(UTC) - timedelta(minutes=1)
    publish(300, timestamp=middle - timedelta(milliseconds=1))
    publish(30, first=300, timestamp=middle)
    ends = client.offsets(topic)
    start = {topic: {"0": ends[0] - 2, "1": -1, "2": -2}}
    end = {topic: {"2": 5}}
    text = str(start).replace("'", '"')

    ranged = load(
        spark,
        broker,
        subscribe=topic,
        startingOffsets=text,
        endingOffsets=str(end).replace("'", '"'),
    )
    timed = load(spark, broker, subscribe=topic, startingTimestamp=int(middle.timestamp() * 1_000))
    cut = load(spark, broker, subscribePattern=f"{topic}|nothing", minPartitions=7)
    part = load(spark, broker, assign=f'{{"{topic}": [2]}}', includeHeaders="false")

    counts = {row.partition: row["count"] for row in ranged.groupBy("partition").count().collect()}
    assert counts == {0: 2, 2: 5}
    assert values(timed) == list(range(300, 330))
    assert cut.rdd.getNumPartitions() == 7
    assert values(cut) == list(range(330))
    assert "headers" not in part.columns
    assert part.select("partition").distinct().collect() == [(2,)]


def test_a_narrower_schema_takes_just_its_columns(
    spark: SparkSession, broker: Served, topic: str, publish: Publish
) -> None:
    publish(50)
    reader = spark.read.format("goqueue").option("servers", broker.address)

    narrow = reader.option("subscribe", topic).schema("offset BIGINT, partition INT").load()

    assert narrow.columns == ["offset", "partition"]
    assert narrow.count() == 50
    with pytest.raises(PySparkException, match="there is no column 'colour'"):
        reader.option("subscribe", topic).schema("colour STRING").load().collect()
    with pytest.raises(PySparkException, match="column offset is bigint, not string"):
        reader.option("subscribe", topic).schema("offset STRING").load().collect()


def test_a_filter_is_that_of_its_own_scan(
    spark: SparkSession,
    broker: Served,
    topic: str,
    publish: Publish,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Scans of one DataFrame share a reader in Spark, so the reader takes no filter from any."""
    publish(200)
    where = f"offset >= 20 AND partition IN (0, 1) AND key = X'6B31' AND topic = '{topic}'"
    frame = load(spark, broker, subscribe=topic)
    expected = [(row.partition, row.offset) for row in frame.where(where).collect()]
    counts = dict(map(tuple, frame.groupBy("partition").count().collect()))

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        again = load(spark, broker, subscribe=topic)
        found = [(row.partition, row.offset) for row in again.where(where).collect()]
        both = again.where("partition = 0").union(again.where("partition = 1")).count()
        joined = again.where("offset < 5").join(again, ["partition", "offset"], "right").count()
        everything = again.count()
        again.where(where).explain("formatted")
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")

    assert expected
    assert sorted(found) == sorted(expected)
    assert both == counts[0] + counts[1]
    assert joined == everything == 200
    plan = capsys.readouterr().out
    assert "Filter (2)\n" in plan
    assert "PushedFilters: [" not in plan


def test_pushed_filters_are_refused() -> None:
    with pytest.raises(ValueError, match="gives the filter of one scan to others"):
        session(push_filters=True)


def test_nothing_is_read_of_an_empty_topic(spark: SparkSession, broker: Served, topic: str) -> None:
    frame = load(spark, broker, subscribe=topic)

    assert frame.count() == 0
    assert frame.schema["offset"].dataType.typeName() == "long"


def test_aborted_messages_are_never_shown(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    with client.producer(topic, transactional_id="spark-reading") as producer:
        for outcome in ("abort", "commit"):
            transaction = producer.transaction()
            transaction.begin()
            for number in range(10):
                transaction.send(b"%d" % number, headers={"outcome": outcome})
            getattr(transaction, outcome)()

    frame = load(spark, broker, subscribe=topic)

    assert values(frame) == list(range(10))


def test_found_without_registering() -> None:
    """The package ``pyspark_goqueue`` is where Spark looks by itself."""
    assert pyspark_goqueue.DefaultSource.name() == "goqueue"


def test_what_is_wrong_is_said(spark: SparkSession, broker: Served, topic: str) -> None:
    """The query's exception names the option, the topic or the broker."""
    with pytest.raises(PySparkException, match="did you mean subscribe"):
        load(spark, broker, subscrib=topic).collect()
    with pytest.raises(PySparkException, match="topic not found: nowhere"):
        load(spark, broker, subscribe="nowhere").collect()
    with pytest.raises(PySparkException, match=r"has no partition \[9\]"):
        load(spark, broker, assign=f'{{"{topic}": [9]}}').collect()
    with pytest.raises(PySparkException, match="behind the latest"):
        load(spark, broker, subscribe=topic, endingOffsets=f'{{"{topic}": {{"0": 99}}}}').collect()
    with pytest.raises(PySparkException, match=r"cannot reach a broker at 127\.0\.0\.1:1:"):
        spark.read.format("goqueue").options(
            servers="127.0.0.1:1", subscribe=topic, timeout="1"
        ).load().collect()
