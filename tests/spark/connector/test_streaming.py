"""Topics as streams: what a query reads, and what it writes exactly once."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import goqueue
from goqueue.client.sync import Client
from tests.acceptance.served import Served

Publish = Callable[..., None]
SECONDS_MAX = 400


def source(spark: SparkSession, address: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("goqueue").option("servers", address)
    chosen = {"startingOffsets": "earliest"} | {k: str(v) for k, v in options.items()}
    return reader.options(**chosen).load()


def start(frame: DataFrame, address: str, checkpoint: str, **options: object) -> StreamingQuery:
    writer = frame.writeStream.format("goqueue").option("servers", address)
    chosen = {name: str(value) for name, value in options.items()}
    return (
        writer.options(**chosen)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def run(frame: DataFrame, address: str, checkpoint: str, **options: object) -> StreamingQuery:
    query = start(frame, address, checkpoint, **options)
    assert query.awaitTermination(SECONDS_MAX)
    return query


def published(client: Client, topic: str) -> Counter[bytes]:
    return Counter(message.value or b"" for message in client.read(topic))


def once(count: int) -> Counter[bytes]:
    return Counter({b"%d" % number: 1 for number in range(count)})


@pytest.fixture
def out(client: Client, topic: str) -> str:
    client.create_topic(f"{topic}.out", partitions=2)
    return f"{topic}.out"


def test_a_stream_goes_on_where_it_was(
    spark: SparkSession,
    broker: Served,
    client: Client,
    topic: str,
    out: str,
    publish: Publish,
    checkpoint: str,
) -> None:
    """In steps of the size allowed; what was published meanwhile comes with the next run."""
    publish(250)
    frame = source(spark, broker.address, subscribe=topic, maxOffsetsPerTrigger=100)
    rows = frame.select("key", "value")

    first = run(rows, broker.address, checkpoint, topic=out)
    publish(50, first=250)
    second = run(rows, broker.address, checkpoint, topic=out)

    sizes = [one["numInputRows"] for one in first.recentProgress if one["numInputRows"]]
    assert sum(sizes) == 250
    assert max(sizes) <= 102
    assert sum(one["numInputRows"] for one in second.recentProgress) == 50
    assert published(client, out) == once(300)


def test_a_batch_that_comes_again_changes_nothing(
    spark: SparkSession,
    broker: Served,
    client: Client,
    topic: str,
    out: str,
    publish: Publish,
    checkpoint: str,
) -> None:
    """As after a crash between the sink's commit and Spark's own."""
    publish(100)
    rows = source(spark, broker.address, subscribe=topic).select("value")
    run(rows, broker.address, checkpoint, topic=out)
    commits = Path(checkpoint) / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink()

    run(rows, broker.address, checkpoint, topic=out)

    assert published(client, out) == once(100)


def test_failing_tasks_leave_nothing_behind(
    spark: SparkSession,
    broker: Served,
    client: Client,
    topic: str,
    out: str,
    publish: Publish,
    checkpoint: str,
) -> None:
    """An attempt that wrote half of its rows and died is as if it never was."""
    publish(2_000)

    def stumble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt dies behind its rows")

    frame = source(spark, broker.address, subscribe=topic, minPartitions=3).select("value")
    rows = frame.mapInArrow(stumble, frame.schema)
    run(rows, broker.address, checkpoint, topic=out)

    assert published(client, out) == once(2_000)
    assert client.list_transactions(open_only=True) == []


def test_new_topics_of_a_pattern_are_picked_up(
    spark: SparkSession,
    broker: Served,
    client: Client,
    topic: str,
    out: str,
    publish: Publish,
    checkpoint: str,
) -> None:
    publish(10)
    rows = source(spark, broker.address, subscribePattern=f"{topic}|{topic}-b").select("value")
    run(rows, broker.address, checkpoint, topic=out)
    client.create_topic(f"{topic}-b", partitions=2)
    publish(10, first=10, to=f"{topic}-b")

    run(rows, broker.address, checkpoint, topic=out)

    assert published(client, out) == once(20)


def test_partitions_that_are_new_to_a_query_are_read_from_their_beginning(
    spark: SparkSession, broker: Served, client: Client, topic: str, out: str, checkpoint: str
) -> None:
    """The topic comes to have three partitions while the checkpoint knows of one."""

    def publish(number: int, partition: int) -> None:
        with client.producer(topic) as producer:
            producer.send(b"%d" % number, partition=partition)

    client.delete_topic(topic)
    client.create_topic(topic, partitions=1)
    publish(0, 0)
    rows = source(spark, broker.address, subscribe=topic).select("value")
    run(rows, broker.address, checkpoint, topic=out)
    client.delete_topic(topic)
    client.create_topic(topic, partitions=3)
    for number in range(4):
        publish(number, number % 3)

    run(rows, broker.address, checkpoint, topic=out)

    assert published(client, out) == once(4)


def test_a_log_that_began_anew_is_told(
    spark: SparkSession,
    broker: Served,
    client: Client,
    topic: str,
    out: str,
    publish: Publish,
    tmp_path: Path,
) -> None:
    """Data that is gone fails the query, or is passed over by choice."""
    publish(100)
    checkpoint = str(tmp_path / "a")
    begin = json.dumps({topic: {"0": 5, "1": 0, "2": 0}})
    frame = source(spark, broker.address, subscribe=topic, startingOffsets=begin)
    query = run(frame.select("value"), broker.address, checkpoint, topic=out)
    assert query.exception() is None
    # The topic is gone and another has its name: the checkpoint's offsets are those of no message.
    shutil.copytree(checkpoint, tmp_path / "b")
    client.delete_topic(topic)
    client.create_topic(topic, partitions=3)
    publish(9)

    strict = start(frame.select("value"), broker.address, checkpoint, topic=out)
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        strict.awaitTermination(SECONDS_MAX)
    lax = source(spark, broker.address, subscribe=topic, failOnDataLoss="false").select("value")
    before = published(client, out)
    run(lax, broker.address, str(tmp_path / "b"), topic=out)

    assert published(client, out) - before == once(9)


@pytest.mark.slow
def test_a_broker_that_dies_is_waited_for(
    spark: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    """Killed under the query and started again: every row is there, and once."""
    with Served(tmp_path / "data") as served:
        with goqueue.connect(served.address) as client:
            client.create_topic("in", partitions=2)
            client.create_topic("out", partitions=2)
            with client.producer("in") as producer:
                for number in range(6_000):
                    producer.send(b"%d" % number)
        frame = source(spark, served.address, subscribe="in", maxOffsetsPerTrigger=1_000)
        query = start(frame.select("value"), served.address, checkpoint, topic="out")
        for _ in range(2):
            while query.isActive and not query.recentProgress:
                query.awaitTermination(1)
            served.kill()
            served.start()
        try:
            query.awaitTermination(SECONDS_MAX)
        except PySparkException:
            # It may give up where an answer was lost for good; its checkpoint knows where to go on.
            run(frame.select("value"), served.address, checkpoint, topic="out")
        with goqueue.connect(served.address) as client:
            assert published(client, "out") == once(6_000)


def test_a_sink_that_cannot_write_says_why(
    spark: SparkSession,
    broker: Served,
    client: Client,
    topic: str,
    publish: Publish,
    tmp_path: Path,
) -> None:
    """And nothing of the batch is to be seen."""
    publish(30)
    frame = source(spark, broker.address, subscribe=topic)
    with pytest.raises(PySparkException, match="topic not found: nowhere"):
        run(frame.select("value"), broker.address, str(tmp_path / "a"), topic="nowhere")
    with pytest.raises(PySparkException, match="unknown columns"):
        run(frame, broker.address, str(tmp_path / "b"), topic=topic)
    wrong = frame.selectExpr("value", "7 AS partition")
    with pytest.raises(PySparkException, match="invalid partition 7"):
        run(wrong, broker.address, str(tmp_path / "c"), topic=topic)

    assert published(client, topic) == once(30)
