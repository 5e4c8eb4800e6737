"""Topics in SQL: views to read and to write, and what becomes of tables."""

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from goqueue.client.sync import Client
from tests.acceptance.served import Served

Publish = Callable[..., None]


@pytest.fixture
def options(broker: Served, topic: str) -> str:
    return f"servers '{broker.address}', subscribe '{topic}'"


def test_a_view_is_read(spark: SparkSession, topic: str, publish: Publish, options: str) -> None:
    publish(30)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING goqueue OPTIONS ({options})")

    [row] = spark.sql("SELECT count(*) AS rows, min(topic) AS topic FROM orders").collect()

    assert (row.rows, row.topic) == (30, topic)


def test_a_view_with_columns_is_written(
    spark: SparkSession, broker: Served, client: Client, topic: str
) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW made (key STRING, value STRING) USING goqueue"
        f" OPTIONS (servers '{broker.address}', topic '{topic}.sql', createTopic '2')"
    )

    spark.sql("INSERT INTO made VALUES ('a', 'x'), ('b', NULL)")

    found = {message.key: message.value for message in client.read(f"{topic}.sql")}
    assert found == {b"a": b"x", b"b": None}
    with pytest.raises(PySparkException, match="a view to write to names its columns"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW made USING goqueue OPTIONS (topic '{topic}.sql')"
        )


def test_a_table_says_why_it_cannot_be_read(
    spark: SparkSession, publish: Publish, options: str
) -> None:
    """Spark keeps no options of it; options of the query are taken."""
    publish(30)
    spark.sql(f"CREATE TABLE orders_table USING goqueue OPTIONS ({options})")

    try:
        with pytest.raises(PySparkException, match="Spark keeps no options of CREATE TABLE"):
            spark.sql("SELECT count(*) FROM orders_table").collect()
        # The options are the fixture's.
        counted = f"SELECT count(*) AS rows FROM orders_table WITH ({options})"  # noqa: S608
        [row] = spark.sql(counted).collect()
    finally:
        spark.sql("DROP TABLE orders_table")

    assert row.rows == 30
