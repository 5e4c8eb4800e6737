"""Where the messages of a request are: from one base offset and what was left out to each."""

from collections.abc import Sequence
from typing import Final

from goqueue.base.errors import DelayConflictError, GoQueueError, SchemaViolationError
from goqueue.base.ids import Offset, PartitionId
from goqueue.core.producers.ledger import Original
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.stamp import REFUSED_OFFSET, Repeat
from goqueue.runtime.log.published import Published

REFUSED_BEFORE: Final = (
    "the message was refused when it was first sent: it did not fit its schema,"
    " or its delay_id was taken"
)


def known_rows(
    originals: Sequence[Original], frames: Sequence[CheckedFrame], number: PartitionId
) -> tuple[Repeat, ...]:
    """Return where each message is of those frames that were published before."""
    places = (
        place
        for original, frame in zip(originals, frames, strict=False)
        for place in place_rows(
            Published(partition=number, base_offset=original.base_offset, repeats=original.repeats),
            frame.sequence_count,
        )
    )
    return tuple(Repeat(row, *place) for row, place in enumerate(places))


def outcomes_of(
    published: Published, count: int
) -> Sequence[tuple[PartitionId, Offset] | GoQueueError]:
    """Return where each of ``count`` messages is, or why it was refused."""
    places = place_rows(published, count)
    if not any(repeat.offset == REFUSED_OFFSET for repeat in published.repeats):
        return places
    return [
        _refusal(published, row) if place[1] == REFUSED_OFFSET else place
        for row, place in enumerate(places)
    ]


def _refusal(published: Published, row: int) -> GoQueueError:
    reason = published.misfits.get(row, REFUSED_BEFORE)
    is_conflict = row in published.conflicts
    return DelayConflictError(reason) if is_conflict else SchemaViolationError(reason)


def place_rows(published: Published, count: int) -> list[tuple[PartitionId, Offset]]:
    """Return where each of ``count`` published messages is, repeats at their originals."""
    base, partition = published.base_offset, published.partition
    if not published.repeats:
        return [(partition, Offset(base + row)) for row in range(count)]
    originals = {repeat.row: (repeat.partition, repeat.offset) for repeat in published.repeats}
    places: list[tuple[PartitionId, Offset]] = []
    for row in range(count):
        place = originals.get(row)
        if place is None:
            place, base = (partition, base), Offset(base + 1)
        places.append(place)
    return places
