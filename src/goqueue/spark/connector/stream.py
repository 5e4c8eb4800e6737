"""Reading topics as a stream: offsets in Spark's checkpoint, a long poll while nothing is new."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from goqueue.base.errors import DataLossError
from goqueue.spark.connector.broker import Broker
from goqueue.spark.connector.option_places import Offsets
from goqueue.spark.connector.options import ReadOptions
from goqueue.spark.connector.planning import (
    admit,
    from_json,
    ranges_between,
    rows_between,
    share_out,
    to_json,
)
from goqueue.spark.connector.positions import chosen_parts, earliest, latest, starts
from goqueue.spark.connector.tasks import Task, TaskReading

if TYPE_CHECKING:
    from goqueue.spark.connector.typed.columns import TypedColumns

IDLE_MS: Final = 500
"""How long a query with nothing to do waits for news before Spark is told so."""
PAUSE_MS: Final = 20
"""How often several topics are looked at meanwhile; a single one is waited for at the broker."""

GO_ON: Final = "; set failOnDataLoss to false to go on"

Json = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and reads their parts in tasks."""

    def __init__(
        self, options: ReadOptions, schema: StructType, typed: "TypedColumns | None" = None
    ) -> None:
        self._options = options
        self._typed = typed
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._broker = Broker(options.connection)
        self._target: Offsets | None = None
        self._newest: Offsets = {}
        self._triggered_s: float | None = None

    # Where the stream stands.

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        parts = chosen_parts(self._broker, self._options)
        return to_json(starts(self._broker, self._options, parts))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a micro-batch may hold."""
        if self._options.rows_per_trigger_max is not None:
            return ReadMaxRows(self._options.rows_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(self._options.bytes_per_trigger_max)
        if self._options.rows_per_trigger_min is not None:
            return ReadMinRows(self._options.rows_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note the present end: this run reads no further."""
        self._target = self._ends()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """Return how far the next micro-batch goes; wait a moment if there is nothing new."""
        begin = from_json(start)
        rows_min = self._rows_min(limit)
        end = self._target if self._target is not None else self._news(begin, rows_min)
        self._newest = end
        if self._options.is_loss_fatal:
            check_loss(begin, end)
        rows = rows_between(begin, end)
        if rows < rows_min and not self._is_overdue():
            return start
        if rows:
            self._triggered_s = time.monotonic()
        return to_json(admit(begin, end, rows_max=self._rows_max(limit)))

    def _rows_min(self, limit: ReadLimit) -> int:
        """Return how many rows are worth a micro-batch; what is there now is taken anyway."""
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return 1
        return self._options.rows_per_trigger_min or 1

    def _is_overdue(self) -> bool:
        """Return True if the last micro-batch is so long ago that fewer rows will do, too."""
        if self._options.rows_per_trigger_min is None or self._triggered_s is None:
            return True
        passed_ms = (time.monotonic() - self._triggered_s) * 1_000
        return passed_ms >= self._options.trigger_delay_max_ms

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """Return the end of the log, from which Spark works out the lag."""
        return to_json(self._newest) if self._newest else None

    def _ends(self) -> Offsets:
        return latest(chosen_parts(self._broker, self._options))

    def _news(self, begin: Offsets, rows_min: int) -> Offsets:
        """Return the end of the log, so much later than ``begin`` if it moves within a moment."""
        deadline = time.monotonic() + IDLE_MS / 1_000
        while True:
            end = self._ends()
            rows = rows_between(begin, end)
            if rows >= rows_min or time.monotonic() >= deadline or (rows and self._is_overdue()):
                return end
            # A trickle would end each wait at once, so those who want more look now and then.
            if len(end) == 1 and not rows:
                topic, ends = next(iter(end.items()))
                self._broker.wait(topic, ends, wait_ms=IDLE_MS)
            else:
                time.sleep(PAUSE_MS / 1_000)

    def _rows_max(self, limit: ReadLimit) -> int | None:
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            return max(int(limit.max_bytes / self._bytes_per_row()), 1)
        return None

    def _bytes_per_row(self) -> float:
        """Return what a row takes on average, as the broker stores it."""
        rows = size = 0
        for topic in self._newest:
            found_rows, found_bytes = self._broker.volume(topic)
            rows += found_rows
            size += found_bytes
        return max(size / rows, 1.0) if rows else 1.0

    # Its micro-batches.

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks between two offsets of the checkpoint; always the same ones."""
        tasks = share_out(
            ranges_between(self._known(from_json(start), from_json(end)), from_json(end)),
            tasks_min=self._options.tasks_min,
            rows_per_task_max=self._options.rows_per_task_max,
        )
        return [Task(ranges) for ranges in tasks]

    def _known(self, begin: Offsets, end: Offsets) -> Offsets:
        """Let partitions that are new to the stream begin where they begin now."""
        if all(set(parts) <= set(begin.get(topic, ())) for topic, parts in end.items()):
            return begin
        found = earliest(chosen_parts(self._broker, self._options))
        return {topic: {**found.get(topic, {}), **begin.get(topic, {})} for topic in end}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(partition, Task), "planned above"
        return TaskReading(
            connection=self._options.connection,
            schema=self._schema,
            typed=self._typed,
            is_loss_fatal=self._options.is_loss_fatal,
        ).read(partition)

    def commit(self, end: Json) -> None:
        """Do nothing: the checkpoint is what remembers."""

    def stop(self) -> None:
        """Do nothing: connections are the process's."""


def check_loss(begin: Offsets, end: Offsets) -> None:
    """Say what the checkpoint knows of and the broker does not have any more."""
    for topic, parts in begin.items():
        if topic not in end:
            raise DataLossError(f"topic {topic} of the checkpoint is gone{GO_ON}")
        for partition, offset in parts.items():
            found = end[topic].get(partition, 0)
            if found < offset:
                raise DataLossError(
                    f"{topic}/{partition} ends at {found}, and the checkpoint is at {offset}: the"
                    f" topic was made anew, or lost messages{GO_ON}"
                )
