"""Reading single messages out of a partition, wherever they lie in their frames."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa
from pyroaring import BitMap64

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Offset
from goqueue.base.units import KiB
from goqueue.core.delivery.runs import array_of
from goqueue.core.log.scan import Span, Walk
from goqueue.core.offset_sets import each
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import messages_of
from goqueue.core.record.cut import rows_at
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.message import Message
from goqueue.core.record.row import Row
from goqueue.runtime.log.partition import Partition

PIECE_BYTES: Final = 384 * KiB
"""What is read from the log in one go; a larger frame comes whole all the same."""


class FoundRows(NamedTuple):
    """Some of the wanted messages, which of the wanted are not in the log, and where to go on."""

    messages: list[Message]
    gone: BitMap64
    next_offset: Offset


async def read_offsets(partition: Partition, wanted: BitMap64, *, end_offset: Offset) -> FoundRows:
    """Read the first of some wanted messages, those of one piece of the log."""
    if partition.is_closed:
        partition.check_open()
    start = partition.log.start_offset
    gone = BitMap64()
    if wanted.min() < start:
        # Retention was here first.
        gone.add_range(wanted.min(), start)
        gone &= wanted
        return FoundRows([], gone, start)
    first = Offset(wanted.min())
    piece = await partition.read(first, end_offset=end_offset, bytes_max=PIECE_BYTES)
    next_offset = Offset(min(piece.next_offset, end_offset))
    if next_offset <= first:
        raise StorageFailedError(f"{partition.name}: nothing can be read at offset {first}")
    sought = BitMap64()
    sought.add_range(first, next_offset)
    sought &= wanted
    messages: list[Message] = []
    for span in Walk(piece.frames):
        if not span.header.flags & CONTROL:
            messages += _pick(partition, span, piece.frames[span.start : span.end], sought)
    found = BitMap64([message.offset for message in messages])
    return FoundRows(messages, sought - found, next_offset)


def _pick(
    partition: Partition, span: Span, frame: memoryview, wanted: BitMap64
) -> Iterator[Message]:
    first = span.header.offset
    if not span.header.is_batch:
        if first in wanted:
            yield Row(span.header, frame).message(*partition.name)
        return
    rows = BitMap64()
    rows.add_range(first, span.end_offset)
    rows &= wanted
    if not rows:
        return
    batch = decode_batch(span.header, frame)
    # Runs of neighbours are common and cheaper to cut than single rows are to gather.
    low, high = rows.min(), rows.max() + 1
    part = batch.slice(low - first, high - low)
    if len(rows) == high - low:
        yield from _messages(partition, part, Offset(low))
        return
    part = rows_at(part, array_of(rows) - low)
    for offset, message in zip(each(rows), _messages(partition, part, Offset(low)), strict=True):
        yield Message(
            message.topic,
            message.partition,
            Offset(offset),
            message.timestamp_us,
            message.key,
            message.value,
            message.headers,
            message.priority,
            message.deliver_at_us,
        )


def _messages(partition: Partition, batch: pa.RecordBatch, first: Offset) -> Iterator[Message]:
    topic, number = partition.name
    return iter(messages_of(batch, topic=topic, partition=number, first_offset=first))
