"""What goes from topic to topic keeps the order of every key."""

from collections import defaultdict
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from goqueue.client.sync import Client
from tests.acceptance.served import Served

ROWS = 400_000
KEYS = 10
"""Three partitions get two to five of them, so that even tasks would cut the largest."""


def copy_as_stream(spark: SparkSession, address: str, topic: str, checkpoint: str) -> None:
    frame = spark.readStream.format("goqueue").options(servers=address, subscribe=topic)
    query = (
        _messages(frame.option("startingOffsets", "earliest").load())
        .writeStream.format("goqueue")
        .options(servers=address, topic=f"{topic}.out", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def copy_as_batch(spark: SparkSession, address: str, topic: str, checkpoint: str) -> None:
    del checkpoint
    frame = spark.read.format("goqueue").options(servers=address, subscribe=topic).load()
    writer = _messages(frame).write.format("goqueue").options(servers=address, topic=f"{topic}.out")
    writer.mode("append").save()


def _messages(frame: DataFrame) -> DataFrame:
    return frame.select("key", "value")


@pytest.mark.parametrize("copy", [copy_as_stream, copy_as_batch])
def test_a_large_batch_keeps_the_order_of_every_key(
    spark: SparkSession,
    broker: Served,
    client: Client,
    topic: str,
    checkpoint: str,
    copy: Callable[[SparkSession, str, str, str], None],
) -> None:
    """The rows of a partition are written by one task, one after the other."""
    client.create_topic(f"{topic}.out", partitions=3, retention_ms=0)
    rows = spark.range(0, ROWS, 1, 1).selectExpr(
        f"concat('k', id % {KEYS}) AS key", "CAST(id AS STRING) AS value"
    )
    rows.write.format("goqueue").options(servers=broker.address, topic=topic).mode("append").save()

    copy(spark, broker.address, topic, checkpoint)

    numbers: defaultdict[bytes, list[int]] = defaultdict(list)
    for message in client.read(f"{topic}.out"):
        numbers[message.key or b""].append(int(message.value or b""))
    assert sum(map(len, numbers.values())) == ROWS
    assert all(found == sorted(found) for found in numbers.values())
