"""Finding messages of the broker's own in a partition by their identity."""

import asyncio
from collections.abc import Collection, Iterator
from typing import Final

from goqueue.base.ids import Offset
from goqueue.base.units import MiB
from goqueue.core.log.scan import Walk
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.row import Row
from goqueue.runtime.log.partition import Partition

LOOK_BYTES: Final = 1 * MiB


async def find_origins(
    partition: Partition, sought: Collection[bytes], *, from_offset: int
) -> dict[bytes, Offset]:
    """Return where messages of these identities are, from an offset on; some may not be there."""
    # What is found must not be lost again; and what is committed can be read.
    await partition.committed()
    found: dict[bytes, Offset] = {}
    offset, end = max(from_offset, partition.log.start_offset), partition.log.end_offset
    while offset < end and len(found) < len(sought):
        piece = await partition.read(Offset(offset), end_offset=end, bytes_max=LOOK_BYTES)
        for origin, place in _origins(piece.frames):
            if origin in sought:
                found.setdefault(origin, place)
        if piece.next_offset <= offset:
            break
        offset = piece.next_offset
        await asyncio.sleep(0)
    return found


def _origins(frames: memoryview) -> Iterator[tuple[bytes, Offset]]:
    for span in Walk(frames):
        if span.header.is_batch or span.header.flags & CONTROL:
            continue
        origin = Row(span.header, frames[span.start : span.end]).origin
        if origin is not None:
            yield origin, span.header.offset
