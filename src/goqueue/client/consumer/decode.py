"""The reply to a poll as portions: the messages of one lease, in the order to hand them out."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

import numpy as np
import pyarrow as pa

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import PartitionId, TopicName
from goqueue.client.consumer.delivery import Delivery, Lease
from goqueue.core.delivery.runs import Written, numbers_in
from goqueue.core.log.scan import Span, Walk
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import fields_of
from goqueue.core.record.cut import rows_at
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.row import Row
from goqueue.core.tracing.traceparent import HEADER, traceparents_of


class Portion:
    """Messages of one lease that wait to be handed out."""

    __slots__ = ("_frames", "_rest", "lease")

    def __init__(self, lease: Lease, frames: memoryview) -> None:
        self.lease = lease
        self._frames: memoryview | None = frames
        self._rest: Iterator[Delivery] = iter(())

    def __repr__(self) -> str:
        return f"<Portion of {self.lease!r}>"

    def messages(self) -> Iterator[Delivery]:
        """Return the messages that were not handed out; made when they are first asked for."""
        if self._frames is not None:
            # In this order: whoever looks meanwhile sees that nothing was handed out.
            self._rest = iter(deliveries_in(self._frames, self.lease))
            self._frames = None
        return self._rest

    def left(self) -> Sequence[int]:
        """Return the offsets that were not handed out."""
        if self._frames is not None:
            return self.lease.offsets
        count = length_hint(self._rest)
        return self.lease.offsets[len(self.lease.offsets) - count :]

    @property
    def count(self) -> int:
        """Return how many messages were not handed out."""
        return len(self.lease.offsets) if self._frames is not None else length_hint(self._rest)


def offsets_of(written: Written) -> Sequence[int]:
    """Return the offsets of a set, in their order."""
    if len(written) == 2 and not isinstance(written, bytes):  # noqa: PLR2004 - one run
        return range(written[0], written[1])
    offsets: list[int] = numbers_in(written).tolist()
    return offsets


def deliveries_in(frames: memoryview, lease: Lease) -> list[Delivery]:
    """Return the leased messages among those in frames, in the order of the lease."""
    offsets = lease.offsets
    ascending = offsets if isinstance(offsets, range) else sorted(offsets)
    is_in_order = ascending is offsets or ascending == offsets
    found: list[Delivery] = []
    walk = Walk(frames)
    for span in walk:
        frame = frames[span.start : span.end]
        if lease.gathered and span.end == len(frames):
            is_all = lease.gathered == lease.order
            wanted = offsets if is_all else offsets_of(lease.gathered)
            gathered = _deliveries(fields_of(decode_batch(span.header, frame)), wanted, lease)
            found, is_in_order = [*([] if is_all else found), *gathered], is_all
        elif not span.header.flags & CONTROL:
            found += _of_frame(span, frame, ascending, lease)
    if walk.fault is not None:
        raise walk.fault
    found = _with_traces(found, lease)
    if is_in_order and len(found) == len(offsets):
        return found
    return _in_order(found, lease)


def _between(ascending: Sequence[int], start: int, end: int) -> Sequence[int]:
    """Return those of some offsets that are in a half-open range."""
    first = bisect_left(ascending, start)
    return ascending[first : bisect_left(ascending, end, first)]


def _of_frame(
    span: Span, frame: memoryview, ascending: Sequence[int], lease: Lease
) -> Iterable[Delivery]:
    header = span.header
    wanted = _between(ascending, header.offset, span.end_offset)
    if not wanted:
        return ()
    if not header.is_batch:
        return (_of_row(Row(header, frame), lease),)
    return _of_batch(decode_batch(header, frame), header.offset, wanted, lease)


def _with_traces(found: list[Delivery], lease: Lease) -> list[Delivery]:
    """Return messages, those that are traced with the header of their trace."""
    if not lease.traced:
        return found
    traces = traceparents_of(lease.tag, numbers_in(lease.traced))
    return [
        _with_header(message, traces[message.offset]) if message.offset in traces else message
        for message in found
    ]


def _with_header(message: Delivery, traceparent: str) -> Delivery:
    """Return a message with one more header. By hand: copying a struct takes twice as long."""
    return Delivery(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp_us,
        message.key,
        message.value,
        {**(message.headers or {}), HEADER: traceparent.encode()},
        message.priority,
        message.deliver_at_us,
        message.lease,
    )


def _in_order(found: Iterable[Delivery], lease: Lease) -> list[Delivery]:
    """Return messages in the order of their lease."""
    offsets = lease.offsets
    by_offset: dict[int, Delivery] = {message.offset: message for message in found}
    try:
        return [by_offset[offset] for offset in offsets]
    except KeyError as error:
        raise CorruptFrameError(
            f"{lease.topic}/{lease.partition}: offset {error} was leased and is not in the reply"
        ) from error


def _of_batch(
    batch: pa.RecordBatch, first_offset: int, wanted: Sequence[int], lease: Lease
) -> Iterator[Delivery]:
    if len(wanted) != batch.num_rows:
        batch = rows_at(batch, np.asarray(wanted, np.int64) - first_offset)
    return _deliveries(fields_of(batch), wanted, lease)


def _deliveries(
    fields: Iterable[Iterable[Any]], offsets: Sequence[int], lease: Lease
) -> Iterator[Delivery]:
    """Return messages at these offsets, made of their fields, column by column."""
    return map(
        Delivery,
        repeat(lease.topic),
        repeat(lease.partition),
        offsets,
        *fields,
        repeat(lease),
    )


def _of_row(row: Row, lease: Lease) -> Delivery:
    return Delivery(
        TopicName(lease.topic),
        PartitionId(lease.partition),
        row.header.offset,
        row.timestamp_us,
        row.key,
        row.value,
        row.headers_with_trace,
        row.header.priority,
        row.deliver_at_us,
        lease,
    )
