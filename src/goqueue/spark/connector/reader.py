"""Reading topics as a batch."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from goqueue.spark.connector.filters import Pushed, push
from goqueue.spark.connector.logs import open_log
from goqueue.spark.connector.options import Offsets, ReadOptions
from goqueue.spark.connector.planning import OffsetRange, ranges_between, share_out
from goqueue.spark.connector.positions import Log, Parts, chosen_parts, ends, place_of, starts
from goqueue.spark.connector.tasks import Task, TaskReading

if TYPE_CHECKING:
    from goqueue.spark.connector.typed.columns import TypedColumns


class Reader(DataSourceReader):
    """Plans a batch on the driver and reads its parts in tasks."""

    def __init__(
        self, options: ReadOptions, schema: StructType, typed: "TypedColumns | None" = None
    ) -> None:
        self._options = options
        self._typed = typed
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._pushed = Pushed()
        # An attribute that passes for the inherited method: Spark refuses readers that override it
        # in sessions that hand no filters down, and a reader cannot know in which one it is.
        self.pushFilters = _Push(self)  # type: ignore[method-assign]

    def take_filters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what can be applied while reading, return the rest."""
        self._pushed, left = push(filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks: what lies between the two ends now, shared out evenly."""
        log = open_log(self._options.connection, self._options.logdir)
        ranges = plan(log, self._options, self._pushed)
        tasks = share_out(
            ranges,
            tasks_min=self._options.tasks_min,
            rows_per_task_max=self._options.rows_per_task_max,
        )
        # Spark takes no tasks at all for one that was not planned.
        return [Task(ranges) for ranges in tasks or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(partition, Task), "planned above"
        return TaskReading(
            connection=self._options.connection,
            logdir=self._options.logdir,
            schema=self._schema,
            typed=self._typed,
            is_loss_fatal=self._options.is_loss_fatal,
            pushed=self._pushed,
        ).read(partition)


class _Push:
    """Called by Spark as ``pushFilters`` where filters are handed down."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)


def plan(log: Log, options: ReadOptions, pushed: Pushed) -> list[OffsetRange]:
    """Return the ranges to be read, narrowed by what was pushed down."""
    parts = chosen_parts(log, options)
    start = _not_before(log, options, pushed, starts(log, options, parts))
    ranges = ranges_between(start, ends(log, options, parts))
    return [left for one in ranges if (left := pushed.narrow(one)) is not None]


def _not_before(log: Log, options: ReadOptions, pushed: Pushed, start: Offsets) -> Offsets:
    """Skip what lies before the first row that is late enough."""
    if pushed.least_us is None:
        return start
    at_time: Parts = chosen_parts(log, options, at_us=max(pushed.least_us, 0))
    return {
        topic: {part.partition: max(start[topic][part.partition], place_of(part)) for part in parts}
        for topic, parts in at_time.items()
    }
