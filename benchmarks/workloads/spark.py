"""The Spark connector beside Spark's own Parquet, and beside a source that yields tuples.

One local session of two cores does everything; the session's start is not timed, and everybody
does the work twice untimed, because a JVM is several times faster then. What a work leaves is
cleared away before the next one is timed.

Values are random bytes, as in the other workloads. One value for all rows would be one entry of a
dictionary in Parquet, and 500 MB of rows a file of 20 MB.
"""

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import goqueue
from benchmarks.peers.peer import PARTITIONS
from benchmarks.trial import RATE, Bench, Measured, Trial, Workload
from goqueue.base.units import KiB
from goqueue.spark.connector.columns import SPARK_SCHEMA
from goqueue.spark.connector.options import read_options
from goqueue.spark.connector.reader import Reader
from goqueue.spark.session import session

VALUE_BYTES = 100
KEYS = 10_000
NOISE_BYTES = 256 * KiB
"""Values are parts of so many random bytes: they cost Spark next to nothing to make up."""
STRIDE = 79_193
"""How far apart the values of two rows begin: far enough that a compressor finds nothing."""
WARMING_ROUNDS = 2
ROWS_PER_MESSAGE = 5
"""Spark is measured with five times the messages of the other workloads: 5 M by default."""
TUPLES_SHARE = 10
"""A source of tuples reads this part of them, for it would take minutes."""
TASKS = 10
"""The order of what is read does not matter here: three partitions are cut for two cores."""
LAST = 0.05
"""What is read of the log by an offset to start at."""


class Tables:
    """The same rows as a topic and as Parquet files, and a session to read them."""

    def __init__(self, bench: Bench) -> None:
        self.rows = bench.options.messages * ROWS_PER_MESSAGE
        self.address = bench.goqueue.client().address
        self.directory: Path = bench.scratch / "spark"
        self.spark: SparkSession = session("benchmarks", master="local[2]")
        self.spark.dataSource.register(TupleSource)
        self.topic = bench.fresh_topic()
        self.parquet = str(self.directory / "parquet")
        self._noise = random.Random(1).randbytes(NOISE_BYTES)
        self._bench = bench
        self._paths: list[str] = []
        self._topics: list[str] = []
        self._count = 0
        with goqueue.connect(self.address) as client:
            client.create_topic(self.topic, partitions=PARTITIONS)
        self.to_topic(self.generated(), self.topic)
        self.read_topic().write.mode("overwrite").parquet(self.parquet)

    def generated(self) -> DataFrame:
        """Return rows that Spark makes up as it goes."""
        place = sql.expr(f"1 + CAST(id * {STRIDE} % {NOISE_BYTES - VALUE_BYTES} AS INT)")
        return self.spark.range(self.rows).select(
            sql.expr(f"CAST(concat('key-', id % {KEYS}) AS BINARY)").alias("key"),
            sql.substring(sql.lit(self._noise), place, sql.lit(VALUE_BYTES)).alias("value"),
        )

    def options(self) -> dict[str, str]:
        """Return what every reader of the topic is told."""
        return {"servers": self.address, "subscribe": self.topic, "minPartitions": str(TASKS)}

    def read_topic(self) -> DataFrame:
        """Return the topic."""
        return self.spark.read.format("goqueue").options(**self.options()).load()

    def read_tuples(self) -> DataFrame:
        """Return some of the topic as a source that yields tuples."""
        some = {"rows": str(self.rows // TUPLES_SHARE), **self.options()}
        return self.spark.read.format("tuples").options(**some).load()

    def stream_topic(self) -> DataFrame:
        """Return the topic as a stream, from its beginning."""
        start = {"startingOffsets": "earliest", **self.options()}
        return self.spark.readStream.format("goqueue").options(**start).load()

    def to_topic(self, frame: DataFrame, topic: str) -> None:
        """Append a batch to a topic."""
        writer = frame.write.format("goqueue").option("servers", self.address)
        writer.option("topic", topic).mode("append").save()

    def fresh(self) -> str:
        """Return a path nobody has used."""
        self._count += 1
        self._paths.append(str(self.directory / f"fresh-{self._count}"))
        return self._paths[-1]

    def fresh_topic(self) -> str:
        """Make a topic nobody has used."""
        self._topics.append(self._bench.fresh_topic())
        with goqueue.connect(self.address) as client:
            client.create_topic(self._topics[-1], partitions=PARTITIONS)
        return self._topics[-1]

    def clear(self) -> None:
        """Remove what was written."""
        with goqueue.connect(self.address) as client:
            while self._topics:
                client.delete_topic(self._topics.pop())
        while self._paths:
            shutil.rmtree(self._paths.pop(), ignore_errors=True)


def trials(bench: Bench) -> list[Trial]:
    """Alternate between the connector, Parquet and tuples."""
    tables = Tables(bench)
    name = bench.goqueue.name
    works: Mapping[tuple[str, str], Callable[[], int]] = {
        ("batch read", name): partial(read, tables, tables.read_topic),
        ("batch read", "parquet"): partial(read, tables, lambda: _parquet(tables)),
        ("batch read", "tuples"): partial(read_tuples, tables),
        ("the last 5 % by offset", name): partial(read_last, tables),
        ("stream read", name): partial(stream, tables),
        ("batch write", name): partial(write, tables),
        ("batch write", "parquet"): partial(write_parquet, tables),
        ("stream write, exactly once", name): partial(stream_write, tables),
        ("archive", name): partial(archive, tables, tables.read_topic),
        ("archive", "parquet"): partial(archive, tables, lambda: _parquet(tables)),
    }
    for _ in range(WARMING_ROUNDS):
        for work in works.values():
            timed(tables, work)
    return [
        Trial(case=case, peer=peer, measure=partial(timed, tables, work))
        for (case, peer), work in works.items()
    ]


def timed(tables: Tables, work: Callable[[], int]) -> Measured:
    """Return the rate of a work that says how many rows it did."""
    tables.clear()
    start = time.perf_counter()
    rows = work()
    return {RATE: rows / (time.perf_counter() - start)}


def _parquet(tables: Tables) -> DataFrame:
    return tables.spark.read.parquet(tables.parquet)


def read(tables: Tables, load: Callable[[], DataFrame]) -> int:
    """Read every column and throw it away."""
    load().write.format("noop").mode("overwrite").save()
    return tables.rows


def read_tuples(tables: Tables) -> int:
    """Do the same through Python tuples."""
    tables.read_tuples().write.format("noop").mode("overwrite").save()
    return tables.rows // TUPLES_SHARE


def read_last(tables: Tables) -> int:
    """Read the end of each partition; count as if it were all."""
    first = int(tables.rows / PARTITIONS * (1 - LAST))
    start = {tables.topic: dict.fromkeys(range(PARTITIONS), first)}
    frame = tables.spark.read.format("goqueue").options(**tables.options())
    frame.option("startingOffsets", json.dumps(start)).load().write.format("noop").mode(
        "overwrite"
    ).save()
    return tables.rows


def stream(tables: Tables) -> int:
    """Read everything there is as one micro-batch."""
    query = (
        tables.stream_topic()
        .writeStream.format("noop")
        .option("checkpointLocation", tables.fresh())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return tables.rows


def write(tables: Tables) -> int:
    """Write made-up rows to a topic, in one transaction."""
    tables.to_topic(tables.generated(), tables.fresh_topic())
    return tables.rows


def write_parquet(tables: Tables) -> int:
    """Write the same rows to Parquet."""
    tables.generated().write.parquet(tables.fresh())
    return tables.rows


def stream_write(tables: Tables) -> int:
    """Stream the Parquet files into a topic, exactly once."""
    source = tables.spark.readStream.schema(_parquet(tables).schema).parquet(tables.parquet)
    query = (
        source.select("key", "value")
        .writeStream.format("goqueue")
        .options(servers=tables.address, topic=tables.fresh_topic())
        .option("checkpointLocation", tables.fresh())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return tables.rows


def archive(tables: Tables, load: Callable[[], DataFrame]) -> int:
    """Copy every column into Parquet files."""
    load().write.parquet(tables.fresh())
    return tables.rows


class TupleSource(DataSource):
    """Yields rows one by one, as most Python sources do."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "tuples"

    def schema(self) -> StructType:
        """Return the connector's columns."""
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads."""
        given = {name: value for name, value in self.options.items() if name != "rows"}
        inner = Reader(read_options(given, is_stream=False), schema)
        return TupleReader(inner, int(self.options["rows"]))


class TupleReader(DataSourceReader):
    """The connector's reader, with every row made an object."""

    def __init__(self, inner: Reader, rows: int) -> None:
        self._inner = inner
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Return the tasks of the connector."""
        return list(self._inner.partitions())

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield a share of the rows of a task."""
        left = self._rows // len(self.partitions())
        batches: Iterator[pa.RecordBatch] = self._inner.read(partition)
        for batch in batches:
            columns = [column.to_pylist() for column in batch.columns]
            headers = batch.schema.get_field_index("headers")
            columns[headers] = [None if one is None else dict(one) for one in columns[headers]]
            for row in zip(*columns, strict=True):
                if not left:
                    return
                left -= 1
                yield row


WORKLOAD = Workload(
    name="spark",
    title="Spark, local[2]: rows read and written through the connector, Parquet and tuples",
    trials=trials,
    rounds_max=5,
)
