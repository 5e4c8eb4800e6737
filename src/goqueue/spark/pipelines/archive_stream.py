"""An archive of messages as a streaming source: by offsets, in bounded batches, resumable.

The checkpoint has offsets by topic and partition, as that of the topic itself would; which files
hold them is looked up anew, so a compaction in between changes nothing.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from goqueue.spark.connector.columns import SPARK_SCHEMA
from goqueue.spark.connector.option_places import Offsets
from goqueue.spark.connector.planning import OffsetRange, admit, from_json, ranges_between, to_json
from goqueue.spark.pipelines.archive_index import ArchiveIndex, Span, ends_of, starts_of
from goqueue.wire.times import parse_moment_us

ROWS_DEFAULT: Final = 200_000
"""Rows of a batch unless told otherwise: a task sorts its share in memory."""
BATCH_ROWS: Final = 16_384
NORMAL: Final = 2

Json = dict[str, dict[str, int]]


class Piece(InputPartition):
    """Offsets of one partition, and the files that hold them."""

    def __init__(self, wanted: OffsetRange, paths: tuple[str, ...]) -> None:
        super().__init__((wanted, paths))
        self.wanted = wanted
        self.paths = paths


class ArchiveSource(DataSource):
    """``format("goqueue-archive")``, for pipelines only."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` is given."""
        return "goqueue-archive"

    def schema(self) -> StructType:
        """Return the columns of a topic."""
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads the stream."""
        return ArchiveReader(dict(self.options), schema)


class ArchiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver and reads their pieces in tasks."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._since = _moment(options.get("since", ""))
        self._until = _moment(options.get("until", ""))
        self._rows_max = int(options.get("maxrowspertrigger", ROWS_DEFAULT))
        self._index = ArchiveIndex(Path(options["lake"]), since=self._since, until=self._until)
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._target: Offsets | None = None

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return the first offset of each partition."""
        return to_json(starts_of(self._index.spans()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a batch may hold."""
        return ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note what is there: this run reads no further."""
        self._target = ends_of(self._index.spans())

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """Return how far the next batch goes."""
        begin = from_json(start)
        spans = self._index.spans()
        end = self._target if self._target is not None else ends_of(spans)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        assert isinstance(limit, ReadMaxRows | ReadAllAvailable), "nothing else was promised"
        joined = {
            topic: {
                part: max(offset, begin.get(topic, {}).get(part, 0))
                for part, offset in parts.items()
            }
            for topic, parts in end.items()
        }
        known = {**begin, **{topic: {**begin.get(topic, {})} for topic in joined}}
        for topic, parts in starts_of(spans).items():
            for part, offset in parts.items():
                known.setdefault(topic, {}).setdefault(part, offset)
        return to_json(admit(known, joined, rows_max=rows_max))

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """Return the end of the archive."""
        return to_json(ends_of(self._index.spans())) or None

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return a piece for each partition: its order is kept by one task reading it."""
        spans = self._index.spans()
        return [
            Piece(wanted, tuple(sorted(one.path for one in spans if _overlaps(one, wanted))))
            for wanted in ranges_between(from_json(start), from_json(end))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece in the order of offsets."""
        assert isinstance(partition, Piece), "planned above"
        if not partition.paths:
            return
        wanted = partition.wanted
        condition = (
            (pc.field("partition") == wanted.partition)
            & (pc.field("offset") >= wanted.start_offset)
            & (pc.field("offset") < wanted.end_offset)
        )
        if self._since is not None:
            condition &= pc.field("timestamp") >= pa.scalar(self._since, _TIME)
        if self._until is not None:
            condition &= pc.field("timestamp") < pa.scalar(self._until, _TIME)
        found = ds.dataset(list(partition.paths), format="parquet").to_table(filter=condition)
        rows = found.sort_by("offset")
        yield from self._shaped(rows, wanted.topic).to_batches(max_chunksize=BATCH_ROWS)

    def _shaped(self, rows: pa.Table, topic: str) -> pa.Table:
        """Return rows in the schema of topics; what an archive does not have is empty."""
        constants: dict[str, Any] = {"topic": topic, "priority": NORMAL}
        columns = []
        for field in self._schema:
            if field.name in rows.column_names and field.name != "topic":
                columns.append(rows.column(field.name).cast(field.type))
            else:
                scalar = pa.scalar(constants.get(field.name), field.type)
                columns.append(pa.repeat(scalar, rows.num_rows))
        return pa.table(columns, schema=self._schema)

    def commit(self, end: Json) -> None:
        """Do nothing: the checkpoint is what remembers."""

    def stop(self) -> None:
        """Do nothing: nothing is held."""


_TIME: Final = pa.timestamp("us", tz="UTC")


def _overlaps(span: Span, wanted: OffsetRange) -> bool:
    return (
        span.topic == wanted.topic
        and span.partition == wanted.partition
        and span.first < wanted.end_offset
        and span.last >= wanted.start_offset
    )


def _moment(text: str) -> datetime | None:
    if not text:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=parse_moment_us(text))
