"""Writing to topics, in batches and streams: exactly once by transactions, or at least once.

Each task attempt writes in a transaction of its own and leaves it; the driver adopts those that
Spark reports as done and commits them together, with the batch as token. A batch that comes again
finds its token there and changes nothing.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from goqueue.base.errors import InvalidTransactionStateError
from goqueue.client.producer.batch_sender import BatchSender
from goqueue.client.tx.detached import Detached
from goqueue.spark.connector.broker import POOL, Broker
from goqueue.spark.connector.options import WriteOptions
from goqueue.spark.connector.rows import gathered
from goqueue.spark.connector.sink_rows import SinkRows, check_columns
from goqueue.spark.connector.tasks import calm_collector
from goqueue.spark.connector.transactions import OpenTransaction, abort_detached, abort_named
from goqueue.wire import calls
from goqueue.wire.packet import Operation

WRITTEN_ROWS: Final = 32_768
"""So many rows are shared out to partitions at once: each of those gets a batch of some size."""
QUERY_ID: Final = "sql.streaming.queryId"
VERSION: Final = "version"
"""Stands for the query in the marks of batches that are numbered by hand."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task attempt has written, for the driver."""

    rows: int
    query_id: str = ""
    handle: Detached | None = None
    attempts_before: tuple[str, ...] = ()
    """The transactional ids of attempts that failed and may not have been able to say so."""


class Mark(NamedTuple):
    """Which batch of which query was written: the token a commit leaves."""

    query_id: str
    batch_id: int

    @property
    def token(self) -> str:
        """Return it as the broker keeps it."""
        return f"{self.query_id}/{self.batch_id}"

    def is_repeat(self, token: str) -> bool:
        """Return True if the last commit was this batch; those of another query say nothing of it.

        A version that is not newer than the last one was written. A query runs only its latest
        batch again, so an earlier number means that its checkpoint was set back.
        """
        query_id, _, number = token.rpartition("/")
        if query_id != self.query_id or not number.isdigit():
            return False
        last = int(number)
        if self.batch_id < last and self.query_id != VERSION:
            raise InvalidTransactionStateError(
                f"batch {self.batch_id} of query {self.query_id} was written before, and so was"
                f" batch {last}: the checkpoint was set back; begin with a new one"
            )
        return self.batch_id <= last


class TaskWriting:
    """How every task of a writer writes. Travels from the driver to the tasks."""

    def __init__(self, options: WriteOptions, schema: StructType, app_id: str) -> None:
        check_columns(schema, topic=options.topic)
        self._options = options
        self._app_id = app_id
        if options.topic is not None:
            # Once on the driver and before any task, which would be tried several times.
            self._partition_count(Broker(options.connection), options.topic)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write what a task has, and say so."""
        calm_collector()
        context: Any = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) or ""
        broker = Broker(self._options.connection)
        if not self._options.is_exactly_once:
            identity = broker.ask_once(
                Operation.INIT_PRODUCER, calls.InitProducer(), calls.ProducerIdentity
            )
            return Written(self._send(batches, broker, identity, None), query_id)
        app_id, partition = self._app_id or query_id, context.partitionId()
        attempt = context.attemptNumber()
        name = task_id(app_id, partition, attempt)
        transaction = OpenTransaction(broker, name, timeout_ms=self._options.transaction_timeout_ms)
        try:
            with transaction.kept_alive(self._options.connection):
                rows = self._send(batches, broker, transaction.identity, transaction.header)
            handle = transaction.detach()
        except BaseException:
            transaction.abort()
            raise
        before = tuple(task_id(app_id, partition, number) for number in range(attempt))
        return Written(rows, query_id, handle, before)

    def _send(
        self,
        batches: Iterator[pa.RecordBatch],
        broker: Broker,
        identity: calls.ProducerIdentity,
        transaction: calls.Transaction | None,
    ) -> int:
        mapping = SinkRows(self._options.topic, partial(self._partition_count, broker))
        with POOL.link(self._options.connection) as link:
            sender = BatchSender(
                link,
                identity,
                transaction=transaction,
                compression=self._options.compression,
                timeout_ms=self._options.connection.timeout_ms,
            )
            for batch in gathered(batches, rows_max=WRITTEN_ROWS):
                for topic, rows, partitions in mapping.cut(batch):
                    sender.send(topic, rows, partitions)
            sender.flush()
        return sender.rows

    def _partition_count(self, broker: Broker, topic: str) -> int:
        return broker.partition_count(topic, partitions_made=self._options.partitions_made)


def task_id(app_id: str, partition: int, attempt: int) -> str:
    """Return the transactional id of a task attempt: the next batch uses it again."""
    return f"{app_id}.task-{partition}.{attempt}"


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._task = TaskWriting(options, schema, options.app_id or "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return self._task.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make a micro-batch visible, unless it is already."""
        written = _written(messages)
        if not self._options.is_exactly_once or not written:
            return
        query_id = written[0].query_id
        settle(self._options, self._options.app_id or query_id, written, Mark(query_id, batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Undo what tasks have written of a micro-batch that failed."""
        del batchId
        _abort(self._options, messages)


class BatchWriter(DataSourceArrowWriter):
    """Writes one batch, all of it or nothing."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        # Without a name of its own a batch is written for itself, and once more if it is run again.
        self._app_id = options.app_id or f"spark-{uuid.uuid4().hex}"
        self._task = TaskWriting(options, schema, self._app_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return self._task.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the batch visible."""
        if self._options.is_exactly_once:
            version = self._options.version
            mark = None if version is None else Mark(VERSION, version)
            settle(self._options, self._app_id, _written(messages), mark)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Undo what tasks have written."""
        _abort(self._options, messages)


def settle(
    options: WriteOptions, app_id: str, written: Sequence[Written], mark: Mark | None
) -> None:
    """Commit what tasks have written under one token; a batch that was committed stays as it is."""
    broker = Broker(options.connection)
    handles = [one.handle for one in written if one.handle is not None]
    transaction = OpenTransaction(broker, app_id, timeout_ms=options.transaction_timeout_ms)
    try:
        if mark is not None and mark.is_repeat(transaction.token):
            transaction.abort()
            abort_detached(broker, handles)
            return
        transaction.adopt(handles)
    except BaseException:
        transaction.abort()
        abort_detached(broker, handles)
        raise
    transaction.commit("" if mark is None else mark.token)
    # Readers would wait for what a killed attempt left open until its time is over.
    abort_named(broker, [name for one in written for name in one.attempts_before])


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [one for one in messages if isinstance(one, Written)]


def _abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    handles = [one.handle for one in _written(messages) if one.handle is not None]
    abort_detached(Broker(options.connection), handles)
