"""The reply to a poll as portions: the messages of one lease, in the order to hand them out."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import length_hint

import numpy as np
import pyarrow as pa

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import PartitionId, TopicName
from goqueue.client.delivery import Delivery, Lease
from goqueue.core.log.scan import Walk
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import fields_of
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.row import Row


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


def offsets_of(order: list[int]) -> Sequence[int]:
    """Return the offsets of runs, in their order."""
    if len(order) == 2:  # noqa: PLR2004 - one run
        return range(order[0], order[1])
    pairs = zip(order[::2], order[1::2], strict=True)
    return list(chain.from_iterable(range(start, end) for start, end in pairs))


def deliveries_in(frames: memoryview, lease: Lease) -> list[Delivery]:
    """Return the leased messages among those in frames, in the order of the lease."""
    offsets = lease.offsets
    ascending = offsets if isinstance(offsets, range) else sorted(offsets)
    is_ascending = ascending is offsets or ascending == offsets
    found: list[Delivery] = []
    walk = Walk(frames)
    for span in walk:
        header = span.header
        if lease.gathered and span.end == len(frames):
            rows = decode_batch(header, frames[span.start : span.end])
            wanted = offsets_of(lease.gathered)
            found += _deliveries(rows, wanted, lease)
            is_ascending = False
            continue
        if header.flags & CONTROL:
            continue
        first = bisect_left(ascending, header.offset)
        behind = bisect_left(ascending, span.end_offset, first)
        if first == behind:
            continue
        frame = frames[span.start : span.end]
        if header.is_batch:
            found += _of_batch(
                decode_batch(header, frame), header.offset, ascending[first:behind], lease
            )
        else:
            found.append(_of_row(Row(header, frame), lease))
    if walk.fault is not None:
        raise walk.fault
    if is_ascending and len(found) == len(offsets):
        return found
    return _in_order(found, lease)


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
    count = len(wanted)
    start = wanted[0] - first_offset
    if wanted[-1] - first_offset - start + 1 != count:
        batch = batch.take(pa.array(np.asarray(wanted, np.int64) - first_offset))
    elif count != batch.num_rows:
        batch = batch.slice(start, count)
    return _deliveries(batch, wanted, lease)


def _deliveries(batch: pa.RecordBatch, offsets: Sequence[int], lease: Lease) -> Iterator[Delivery]:
    """Return the rows of a batch as messages at these offsets."""
    return map(
        Delivery,
        repeat(lease.topic),
        repeat(lease.partition),
        offsets,
        *fields_of(batch),
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
        row.headers,
        row.header.priority,
        row.deliver_at_us,
        lease,
    )
