"""What a task does: ranges of offsets in, record batches out."""

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from goqueue.client.protocol.arrow import SCHEMA
from goqueue.spark.connector.logs import open_log
from goqueue.spark.connector.options import Connection
from goqueue.spark.connector.planning import OffsetRange
from goqueue.spark.connector.rows import RowMapping, with_schema

if TYPE_CHECKING:
    from goqueue.spark.connector.typed.columns import TypedColumns
    from goqueue.spark.connector.typed.rows import TypedRows


class Task(InputPartition):
    """Ranges one task reads."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges

    def __repr__(self) -> str:
        return f"Task({', '.join(map(_describe, self.ranges))})"


def _describe(one: OffsetRange) -> str:
    return f"{one.topic}/{one.partition} {one.start_offset}..{one.end_offset - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReading:
    """How every task of a reader reads. Travels from the driver to the tasks."""

    connection: Connection
    logdir: str | None = None
    schema: pa.Schema
    typed: "TypedColumns | None" = None
    is_loss_fatal: bool

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Yield what a task has to read."""
        log = open_log(self.connection, self.logdir)
        mapping = RowMapping(self._stored_names())
        typed = self._typed_rows()
        calm_collector()
        for wanted in task.ranges:
            chunks = log.chunks(wanted, is_loss_fatal=self.is_loss_fatal)
            for rows in mapping.batches_in(chunks):
                if typed is None:
                    yield with_schema(rows, self.schema)
                else:
                    yield self._with_typed(rows, typed.columns(rows["value"], wanted.topic))

    def _stored_names(self) -> list[str]:
        """Return the columns to be taken from the log: those asked for, and what others need."""
        names = [name for name in self.schema.names if name in SCHEMA.names]
        if len(names) < len(self.schema.names) and "value" not in names:
            names.append("value")
        return names

    def _typed_rows(self) -> "TypedRows | None":
        if self.typed is None or all(name in SCHEMA.names for name in self.schema.names):
            return None
        # Three languages of schemas, and pandas with them: loaded by who needs them.
        from goqueue.spark.connector.typed.rows import TypedRows  # noqa: PLC0415

        return TypedRows(self.typed, self.schema.names, self.connection)

    def _with_typed(self, rows: pa.RecordBatch, typed: dict[str, pa.Array]) -> pa.RecordBatch:
        arrays = [rows[name] if name in SCHEMA.names else typed[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _Collector:
    modules_loaded = 0


def calm_collector() -> None:
    """Set what is loaded apart: PySpark collects garbage after every task of a worker.

    A task loads some of it, and a worker that has read may write next: so as often as needed.
    """
    if len(sys.modules) != _Collector.modules_loaded:
        gc.collect()
        gc.freeze()
        _Collector.modules_loaded = len(sys.modules)
