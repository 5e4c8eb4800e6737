"""Publishing whole Arrow batches from one thread, with several requests under way.

For programs that have columns already: no message is ever an object here. Requests go out in order
under the producer's stamp; after a failure that may pass everything without an answer goes out
again, in the same order with the same numbers, so the broker recognises what it already has.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from goqueue.base.errors import (
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    OutOfOrderSequenceError,
    SchemaViolationError,
    from_code,
)
from goqueue.base.ids import Epoch, ProducerId
from goqueue.base.ids import Sequence as SequenceNumber
from goqueue.base.limits import BATCH_ROWS_MAX
from goqueue.base.units import MiB
from goqueue.client.blocking import BlockingLink
from goqueue.client.link import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, Answer, decode
from goqueue.core.record.batch import SCHEMAS, PackedBatch, pack_batch
from goqueue.core.record.stamp import REFUSED_OFFSET, ProducerStamp
from goqueue.wire import calls
from goqueue.wire.packet import Operation

IN_FLIGHT_MAX: Final = 4
REQUEST_BYTES: Final = 4 * MiB
FRAME_BYTES: Final = 1 * MiB
"""Batches much larger than this are cut; the broker takes larger ones, readers like these."""

LOST: Final = (ConnectionLostError, DeadlineExceededError)
"""After these nobody knows whether the broker has what was sent."""

Numbers = np.ndarray[Any, Any]
_COLUMN_SETS: Final = {tuple(schema.names): place for place, schema in enumerate(SCHEMAS)}


class _Part(NamedTuple):
    """One batch for one partition."""

    partition: int
    packed: PackedBatch
    stamp: ProducerStamp


class _Request(NamedTuple):
    """What goes out together."""

    number: int
    topic: str
    parts: tuple[_Part, ...]


class BatchSender:
    """Sends batches of one producer, in or outside a transaction."""

    def __init__(
        self,
        link: BlockingLink,
        identity: calls.ProducerIdentity,
        *,
        transaction: calls.Transaction | None = None,
        compression: str | None = None,
        timeout_ms: int = 30_000,
    ) -> None:
        self._link = link
        self._identity = identity
        self._transaction = transaction
        self._compression = compression
        self._timeout_ms = timeout_ms
        self._sequences: dict[tuple[str, int], int] = {}
        self._waiting: dict[int, _Request] = {}
        self._sent_count = 0
        self.rows = 0
        """How many messages were placed."""

    def __repr__(self) -> str:
        return f"<BatchSender of {self._identity.producer_id}: {len(self._waiting)} under way>"

    def send(self, topic: str, batch: pa.RecordBatch, partitions: Numbers) -> None:
        """Queue the rows of a batch of a stored schema, each for its partition.

        Waits only while several requests are under way; what failed is raised here or by ``flush``.
        """
        held: list[_Part] = []
        size = 0
        for part in self._cut(topic, batch, partitions):
            if held and size + len(part.packed.value) > REQUEST_BYTES:
                self._submit(topic, held)
                held, size = [], 0
            held.append(part)
            size += len(part.packed.value)
        if held:
            self._submit(topic, held)

    def _submit(self, topic: str, parts: Sequence[_Part]) -> None:
        while len(self._waiting) >= IN_FLIGHT_MAX:
            self._take_reply()
        self._sent_count += 1
        request = _Request(self._sent_count, topic, tuple(parts))
        try:
            self._post(request)
        except LOST:
            self._again([*self._waiting.values(), request])

    def flush(self) -> None:
        """Return when every row is placed, or raise why one is not."""
        while self._waiting:
            self._take_reply()

    # Cutting.

    def _cut(self, topic: str, batch: pa.RecordBatch, partitions: Numbers) -> Iterator[_Part]:
        counts = np.bincount(partitions)
        used = np.flatnonzero(counts).tolist()
        if len(used) > 1:
            # Numbers this narrow are sorted by counting them.
            order = np.argsort(partitions.astype(np.uint16), kind="stable")
            batch = batch.take(pa.array(order))
        start = 0
        for partition in used:
            rows = int(counts[partition])
            for piece in _pieces(batch.slice(start, rows)):
                yield self._part(topic, partition, piece)
            start += rows

    def _part(self, topic: str, partition: int, batch: pa.RecordBatch) -> _Part:
        times = batch.column("timestamp").view(pa.int64()).to_numpy()
        packed = pack_batch(
            batch,
            column_set=_COLUMN_SETS[tuple(batch.schema.names)],
            first_timestamp_us=int(times.min()),
            last_timestamp_us=int(times.max()),
            compression=self._compression,
            transaction=0 if self._transaction is None else self._transaction.number,
        )
        place = (topic, partition)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + packed.rows
        stamp = ProducerStamp(
            ProducerId(self._identity.producer_id),
            Epoch(self._identity.epoch),
            SequenceNumber(sequence),
        )
        return _Part(partition, packed, stamp)

    # Sending.

    def _post(self, request: _Request) -> None:
        frames = [part.packed.buffers(part.stamp) for part in request.parts]
        sizes = [
            calls.ProducePart(part.partition, sum(map(len, frame)))
            for part, frame in zip(request.parts, frames, strict=True)
        ]
        header = calls.Produce(request.topic, "all", sizes, self._transaction)
        payload = list(chain.from_iterable(frames))
        self._waiting[self._link.send(Operation.PRODUCE, header, payload)] = request

    def _take_reply(self) -> None:
        """Take one reply; whatever may pass is seen through here."""
        try:
            reply = self._link.receive_any()
        except LOST:
            self._again(list(self._waiting.values()))
            return
        if reply.correlation not in self._waiting:
            assert isinstance(reply.outcome, GoQueueError), "only complaints come unasked"
            self._again(list(self._waiting.values()))
            return
        request = self._waiting.pop(reply.correlation)
        if self._judge(request, reply.outcome) is not None:
            # Those sent behind it may be placed already; sent again they are recognised.
            self._again([request, *self._waiting.values()])

    def _judge(self, request: _Request, outcome: Answer | GoQueueError) -> GoQueueError | None:
        """Count what was placed; return what may pass, raise what will not."""
        if isinstance(outcome, GoQueueError):
            return _passing(outcome)
        produced = decode(outcome.header, calls.Produced)
        failure: GoQueueError | None = None
        for part in produced.parts:
            if part.failure is not None:
                error = from_code(part.failure.code, part.failure.message)
                # Out of order means that an earlier one failed in a way that may pass.
                is_behind = isinstance(error, OutOfOrderSequenceError) and (
                    failure is not None or bool(self._waiting)
                )
                failure = error if is_behind else _passing(error)
            for repeat in part.repeats:
                if repeat.offset == REFUSED_OFFSET:
                    reason = part.misfits.get(repeat.row, "the message does not fit its schema")
                    raise SchemaViolationError(f"{request.topic}/{part.partition}: {reason}")
        if failure is None:
            self.rows += sum(part.packed.rows for part in request.parts)
        return failure

    def _again(self, requests: Sequence[_Request]) -> None:
        """Send what is not placed once more, one by one and in order, until it is."""
        self._waiting = {}
        # Replies to what was under way must not be taken for those to come.
        self._link.close()
        for request in sorted(requests, key=lambda one: one.number):
            deadline = time.monotonic() + self._timeout_ms / 1_000
            backoff_s = BACKOFF_SECONDS
            while (trouble := self._send_one(request)) is not None:
                if time.monotonic() + backoff_s > deadline:
                    seconds = self._timeout_ms / 1_000
                    reason = f"not placed in {seconds:g} s: {trouble}"
                    raise DeadlineExceededError(reason) from trouble
                time.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)

    def _send_one(self, request: _Request) -> GoQueueError | None:
        try:
            self._post(request)
            reply = self._link.receive_any()
        except LOST as error:
            self._waiting = {}
            return error
        self._waiting = {}
        return self._judge(request, reply.outcome)


def _passing(error: GoQueueError) -> GoQueueError:
    """Return an error that may pass, raise any other."""
    if not error.retryable:
        raise error
    return error


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch so that each piece has about the size readers like, and is within the limits."""
    count = max(1, round(batch.nbytes / FRAME_BYTES), -(-batch.num_rows // BATCH_ROWS_MAX))
    step = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, step):
        yield from _fitting(batch.slice(start, step))


def _fitting(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a piece whose rows are so uneven that it is still too large."""
    if batch.num_rows == 1 or batch.nbytes <= 8 * FRAME_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _fitting(batch.slice(0, half))
    yield from _fitting(batch.slice(half))
