"""DataFrames to topics, as a batch."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from goqueue.client.sync import Client
from goqueue.core.producers.partitioner import partition_of_key
from tests.acceptance.served import Served


def save(frame: DataFrame, broker: Served, **options: object) -> None:
    writer = frame.write.format("goqueue").option("servers", broker.address).mode("append")
    writer.options(**{name: str(value) for name, value in options.items()}).save()


def test_a_batch_arrives_whole_and_where_its_keys_belong(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    rows = spark.range(5_000).selectExpr(
        "concat('k', id % 50) AS key", "cast(id AS string) AS value"
    )

    save(rows, broker, topic=topic, compression="zstd")

    messages = list(client.read(topic))
    assert Counter(one.value for one in messages) == Counter(b"%d" % n for n in range(5_000))
    assert all(one.partition == partition_of_key(one.key or b"", 3) for one in messages)


def test_everything_a_message_can_have_is_written(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    client.create_topic(f"{topic}.b", partitions=1, retention_ms=0)
    rows = spark.sql(
        f"""SELECT '{topic}.b' AS topic, X'01FF' AS key, 'v' AS value, map('h', 'x') AS headers,
                   4 AS priority, 0 AS partition, timestamp'2026-01-02 03:04:05' AS timestamp,
                   timestamp'2099-01-01 00:00:00' AS deliver_at"""
    )

    save(rows, broker, topic=topic)

    [message] = client.read(f"{topic}.b", delayed="show")
    assert (message.key, message.value, message.headers) == (b"\x01\xff", b"v", {"h": b"x"})
    assert message.priority == 4
    assert message.timestamp_us == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp() * 1e6
    assert list(client.read(f"{topic}.b")) == []


def test_a_batch_that_fails_is_not_there_at_all(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    rows = spark.range(0, 1_000, 1, 4).selectExpr(
        "CAST(if(id = 900, raise_error('no good'), id) AS string) AS value"
    )

    with pytest.raises(PySparkException, match="no good"):
        save(rows, broker, topic=topic)

    assert list(client.read(topic)) == []


def test_a_version_is_written_once(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    """What ``foreachBatch`` needs: the same batch twice is one."""
    rows = spark.range(10).selectExpr("cast(id AS string) AS value")
    for version in (1, 1, 2, 1):
        save(rows, broker, topic=topic, txnAppId=f"app-{topic}", txnVersion=version)

    assert len(list(client.read(topic))) == 20


def test_at_least_once_by_choice(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    rows = spark.range(100).selectExpr("cast(id AS string) AS value")

    save(rows, broker, topic=topic, delivery="at-least-once")

    assert len(list(client.read(topic))) == 100


def test_a_schema_of_the_topic_is_kept(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    """A row that does not fit fails the batch, and none of it is to be seen."""
    client.schemas.register(f"{topic}-value", {"type": "object", "required": ["id"]})
    client.configure_topic(topic, schema_validation="on")
    rows = spark.range(10).selectExpr("if(id = 7, '{}', concat('{\"id\": ', id, '}')) AS value")

    with pytest.raises(PySparkException, match="id"):
        save(rows, broker, topic=topic)

    assert list(client.read(topic)) == []


def test_a_log_is_not_overwritten(spark: SparkSession, broker: Served, topic: str) -> None:
    rows = spark.range(1).selectExpr("cast(id AS string) AS value")

    with pytest.raises(PySparkException, match="a log is only appended to"):
        rows.write.format("goqueue").options(servers=broker.address, topic=topic).mode(
            "overwrite"
        ).save()
