"""Chunks of frames as readers get them: as messages, or as stored batches."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec
import pyarrow as pa

from goqueue.base.errors import DataLossError
from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.client.protocol.message import Message, message_of, runs_of
from goqueue.core.log.scan import Span, Walk
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import batch_of_drafts
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.message import Draft
from goqueue.core.record.row import Row


class Chunk(msgspec.Struct, frozen=True):
    """Whole frames of one partition, of which the offsets from start to end are wanted."""

    topic: TopicName
    partition: PartitionId
    frames: memoryview
    start_offset: Offset
    end_offset: Offset
    spans: list[Span] | None = None
    """The frames, where they were checked when they were read."""
    aborted: Sequence[tuple[int, int]] = ()
    """Ranges, half-open and ascending, that are not wanted all the same."""


def messages_in(chunk: Chunk) -> Iterator[Message]:
    """Yield the messages of a chunk, in order."""
    return chain.from_iterable(runs_in(chunk))


def runs_in(chunk: Chunk) -> Iterator[Iterable[Message]]:
    """Yield the messages of a chunk in runs.

    Whoever chains the runs gets each message without waking a generator for it.
    """
    topic, partition = chunk.topic, chunk.partition
    for span, wanted in _frames_in(chunk):
        frame = chunk.frames[span.start : span.end]
        if not span.header.is_batch:
            yield (message_of(Row(span.header, frame), topic=topic, partition=partition),)
            continue
        for first, batch in _cut(span, frame, wanted):
            yield from runs_of(batch, topic=topic, partition=partition, first_offset=first)


def stored_batches_in(chunk: Chunk) -> Iterator[tuple[Offset, pa.RecordBatch]]:
    """Yield the record batches of a chunk as stored, each with its first offset.

    Row frames that follow one another are gathered into one batch.
    """
    drafts: list[Draft] = []
    first = Offset(0)
    for span, wanted in _frames_in(chunk):
        header = span.header
        frame = chunk.frames[span.start : span.end]
        is_next = not header.is_batch and header.offset == first + len(drafts)
        if drafts and not is_next:
            yield first, batch_of_drafts(drafts)[0]
            drafts = []
        if header.is_batch:
            yield from _cut(span, frame, wanted)
        else:
            first = first if drafts else header.offset
            drafts.append(Row(header, frame).draft())
    if drafts:
        yield first, batch_of_drafts(drafts)[0]


def _frames_in(chunk: Chunk) -> Iterator[tuple[Span, list[tuple[int, int]]]]:
    """Yield the frames of a chunk that have anything wanted in them, and what that is."""
    for span in _checked(chunk) if chunk.spans is None else chunk.spans:
        if not span.header.flags & CONTROL:
            wanted = _wanted(chunk, span)
            if wanted:
                yield span, wanted


def _checked(chunk: Chunk) -> Iterator[Span]:
    """Yield the frames of a chunk; the broker sends whole and good ones, the road may not."""
    walk = Walk(chunk.frames)
    yield from walk
    if walk.position < len(chunk.frames):
        raise DataLossError(
            f"{chunk.topic}/{chunk.partition}: a frame came damaged from the broker"
            f": {walk.fault or 'it is cut short'}"
        )


def _wanted(chunk: Chunk, span: Span) -> list[tuple[int, int]]:
    """Return the ranges of a frame's offsets that are wanted."""
    start: int = max(span.header.offset, chunk.start_offset)
    end: int = min(span.end_offset, chunk.end_offset)
    aborted = chunk.aborted
    wanted: list[tuple[int, int]] = []
    place = bisect_right(aborted, start, key=_end_of) if aborted else 0
    while place < len(aborted) and aborted[place][0] < end:
        if start < aborted[place][0]:
            wanted.append((start, aborted[place][0]))
        start = aborted[place][1]
        place += 1
    if start < end:
        wanted.append((start, end))
    return wanted


def _end_of(range_: tuple[int, int]) -> int:
    return range_[1]


def _cut(
    span: Span, frame: memoryview, wanted: Sequence[tuple[int, int]]
) -> Iterator[tuple[Offset, pa.RecordBatch]]:
    """Yield what is wanted of a batch, each piece with its first offset."""
    batch = decode_batch(span.header, frame)
    for start, end in wanted:
        is_whole = end - start == batch.num_rows
        piece = batch if is_whole else batch.slice(start - span.header.offset, end - start)
        yield Offset(start), piece
