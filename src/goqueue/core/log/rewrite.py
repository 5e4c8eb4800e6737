"""What stays of a frame when some of its messages go, for a log that keeps its offsets.

Shape: codec. A frame of which everything stays is passed as it lies. What stays of a batch goes on
in runs, as batch frames or, where a run is short, as row frames. Runs no longer carry the stamp of
their producer, whose sequences they do not show in full.
"""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_HEADER_BYTES
from goqueue.base.units import NS_PER_US
from goqueue.core.log.scan import Span, Walk
from goqueue.core.offset_sets import each
from goqueue.core.record.batch import (
    BatchFields,
    batch_fields,
    decode_batch,
    pack_batch,
    with_append_time,
)
from goqueue.core.record.columns import microseconds
from goqueue.core.record.frame import CONTROL, Buffer, FrameHeader, read_header, seal_header
from goqueue.core.record.hole import encode_holes
from goqueue.core.record.repack import ROWS_AS_BATCH_MIN, drafts_of
from goqueue.core.record.row import encode_row
from goqueue.core.record.stamp import NO_STAMP

_NONE: Final = BitMap64()


class Kept(NamedTuple):
    """A frame that stays, or the part of one."""

    offset: Offset
    rows: int
    timestamp_ns: int
    frame: Buffer


def keep_rows(
    header: FrameHeader, frame: memoryview, *, rows: int, dropped: BitMap64
) -> Iterator[Kept]:
    """Yield what stays of a checked frame when messages at some offsets go."""
    first, end = header.offset, header.offset + rows
    count = dropped.range_cardinality(first, end)
    if count == rows:
        return
    if count == 0:
        yield Kept(first, rows, header.timestamp_ns, frame)
        return
    batch = decode_batch(header, frame)
    fields = batch_fields(header, frame)
    drafts = cache(lambda: drafts_of(header, frame))
    for start, stop in _runs(first, end, dropped):
        # Only a batch can say when it was appended.
        if stop - start >= ROWS_AS_BATCH_MIN or fields.appended_ms:
            yield _run(batch.slice(start, stop - start), fields, Offset(first + start))
            continue
        for row in range(start, stop):
            draft, offset = drafts()[row], Offset(first + row)
            raw = encode_row(draft, offset=offset, is_stored=True)
            yield Kept(offset, 1, draft.timestamp_us * NS_PER_US, raw)


def cut_to(
    frames: memoryview, *, start_offset: Offset, end_offset: Offset, empty: BitMap64
) -> bytes:
    """Return checked frames cut to a range of offsets, with holes for the ``empty`` ones in it.

    Compaction leaves other borders on each replica, so a frame may reach beyond the range.
    """
    parts: list[Buffer] = []
    for span in Walk(frames):
        first, end = max(span.header.offset, start_offset), min(span.end_offset, end_offset)
        frame = frames[span.start : span.end]
        is_inside = (first, end) == (span.header.offset, span.end_offset)
        is_data = not span.header.flags & CONTROL
        if is_inside and not (is_data and empty.range_cardinality(first, end)):
            parts.append(frame)
        elif first < end:
            parts += _cut_frame(span, frame, first, end, empty if is_data else _NONE)
    return b"".join(parts)


def _cut_frame(
    span: Span, frame: memoryview, first: int, end: int, empty: BitMap64
) -> Iterator[Buffer]:
    reached = Offset(first)
    if not span.header.is_hole:
        dropped = empty.copy()
        dropped.add_range(span.header.offset, first)
        dropped.add_range(end, span.end_offset)
        for kept in keep_rows(span.header, frame, rows=span.rows, dropped=dropped):
            yield from (hole for _, _, hole in encode_holes(reached, kept.offset))
            yield kept.frame
            reached = Offset(kept.offset + kept.rows)
    yield from (hole for _, _, hole in encode_holes(reached, Offset(end)))


def _runs(first: int, end: int, dropped: BitMap64) -> Iterator[tuple[int, int]]:
    """Yield the runs of rows between those that go."""
    whole = BitMap64()
    whole.add_range(first, end)
    borders = [-1, *(int(offset) - first for offset in each(whole & dropped)), end - first]
    for before, after in pairwise(borders):
        if after - before > 1:
            yield before + 1, after


def _run(batch: pa.RecordBatch, fields: BatchFields, offset: Offset) -> Kept:
    times = [time_us or 0 for time_us in microseconds(batch.column("timestamp"))]
    packed = pack_batch(
        batch,
        column_set=fields.column_set,
        first_timestamp_us=min(times),
        last_timestamp_us=max(times),
        compression=fields.compression,
    )
    raw = packed.frame(NO_STAMP)
    raw = with_append_time(read_header(raw), raw, fields.appended_ms)
    rest = memoryview(raw)[FRAME_HEADER_BYTES:]
    header = read_header(raw)._replace(offset=offset)
    return Kept(
        offset, batch.num_rows, header.timestamp_ns, seal_header(header, rest) + bytes(rest)
    )
