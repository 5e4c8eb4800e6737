"""Finding out which traces messages carry, from the messages themselves."""

import asyncio
from collections.abc import Mapping
from typing import Final

from pyroaring import BitMap64

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset
from goqueue.base.units import KiB
from goqueue.core.log.scan import Walk
from goqueue.core.offset_sets import each
from goqueue.core.record.queue_rows import rows_of_frame
from goqueue.core.tracing.traceparent import TraceParent
from goqueue.runtime.log.partition import Partition

PIECE_BYTES: Final = 256 * KiB
READS_MAX: Final = 256
"""Pieces of the log read for one request; what they do not hold is not found."""


async def find_callers(partition: Partition, offsets: BitMap64) -> Mapping[int, TraceParent]:
    """Return the recorded traces some messages carry: as remembered, or else as in the log."""
    trace = partition.trace
    carrying = offsets & partition.queue.callers.sampled
    if trace is None or not carrying:
        return {}
    known = trace.tracer.callers(trace.place.tag, carrying)
    unknown = carrying - BitMap64(known)
    return {**known, **await read_callers(partition, unknown)} if unknown else known


async def read_callers(partition: Partition, offsets: BitMap64) -> Mapping[int, TraceParent]:
    """Return the recorded traces some messages carry, read from the log."""
    found: dict[int, TraceParent] = {}
    left = offsets.copy()
    for _ in range(READS_MAX):
        left.remove_range(0, partition.log.start_offset)
        if not left or partition.is_closed:
            break
        first, end = Offset(left.min()), Offset(left.max() + 1)
        piece = await partition.read(first, end_offset=end, bytes_max=PIECE_BYTES)
        for span in Walk(piece.frames):
            try:
                rows = rows_of_frame(span.header, piece.frames[span.start : span.end])
            except CorruptFrameError:
                continue
            for row, caller in rows.callers.sampled.items() if rows and rows.callers else ():
                found[span.header.offset + row] = caller
        left.remove_range(0, max(piece.next_offset, first + 1))
        # Others get their turn, however much of it is in memory.
        await asyncio.sleep(0)
    return {offset: found[offset] for offset in each(offsets) if offset in found}
