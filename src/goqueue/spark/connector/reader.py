"""Reading topics as a batch.

No filter is taken from Spark, which would leave it to a reader that several scans share (ADR 0033).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from goqueue.spark.connector.logs import open_log
from goqueue.spark.connector.options import ReadOptions
from goqueue.spark.connector.planning import OffsetRange, ranges_between, share_out
from goqueue.spark.connector.positions import Log, chosen_parts, ends, starts
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

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks: what lies between the two ends now."""
        log = open_log(self._options.connection, self._options.logdir)
        tasks = share_out(
            plan(log, self._options),
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
        ).read(partition)


def plan(log: Log, options: ReadOptions) -> list[OffsetRange]:
    """Return the ranges to be read."""
    parts = chosen_parts(log, options)
    return ranges_between(starts(log, options, parts), ends(log, options, parts))
