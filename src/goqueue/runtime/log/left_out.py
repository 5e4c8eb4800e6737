"""Messages of a request that are not written: refused, published before, or replaced at once."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset, PartitionId
from goqueue.core.producers.dedup import DedupWindow, Remembered
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.repack import with_append_times, without_repeats
from goqueue.core.record.stamp import REFUSED_OFFSET, Repeat
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.partition import Partition


class LeftOut(NamedTuple):
    """Rows that are refused, and rows that a later one of the same request replaces."""

    refused: AbstractSet[int]
    superseded: Mapping[int, int]


def new_rows(
    clock: Clock,
    target: Partition,
    frames: list[CheckedFrame],
    out: LeftOut,
    dedup: DedupWindow,
) -> tuple[list[CheckedFrame], tuple[Remembered, ...]]:
    """Return what is to be written of a request, and the dedup ids to remember."""
    is_deduplicated = target.settings.dedup_window_ms and any(f.dedup_ids for f in frames)
    if is_deduplicated and frames[0].transaction:
        # What is aborted was never there: a repeat of it must not be left out.
        raise InvalidRequestError("dedup_id: not in a transaction, which may be undone")
    if not (is_deduplicated or out.refused or out.superseded):
        return frames, ()
    frames, fresh = leave_out(frames, out, dedup, target, now_ms=clock.steady_ms())
    # By their own times, ids of backdated messages would be forgotten at a restart.
    return (with_append_times(frames, clock.now_ms()) if fresh else frames), fresh


def leave_out(
    frames: list[CheckedFrame],
    out: LeftOut,
    dedup: DedupWindow,
    target: Partition,
    *,
    now_ms: int,
) -> tuple[list[CheckedFrame], tuple[Remembered, ...]]:
    """Return frames without the rows that are not written, and the dedup ids to remember."""
    number = target.name.partition
    left_out = [Repeat(row, number, REFUSED_OFFSET) for row in sorted(out.refused)]
    fresh: tuple[Remembered, ...] = ()
    if target.settings.dedup_window_ms:
        dedup_ids = _dedup_ids(frames)
        absent = out.refused | out.superseded.keys()
        places = [row for row in range(len(dedup_ids)) if row not in absent]
        repeats, fresh = dedup.find(
            [dedup_ids[row] for row in places],
            partition=number,
            next_offset=target.log.end_offset,
            now_ms=now_ms,
        )
        left_out += [Repeat(places[one.row], one.partition, one.offset) for one in repeats]
    left_out += _superseded(out.superseded, left_out, number, target.log.end_offset)
    left_out.sort(key=lambda repeat: repeat.row)
    return ([without_repeats(frames, left_out)] if left_out else frames), fresh


def repeated_rows(
    frames: Sequence[CheckedFrame], dedup: DedupWindow, target: Partition, *, now_ms: int
) -> list[int]:
    """Return the rows that were published before, by their dedup ids."""
    if not target.settings.dedup_window_ms:
        return []
    repeats, _ = dedup.find(
        _dedup_ids(frames),
        partition=target.name.partition,
        next_offset=target.log.end_offset,
        now_ms=now_ms,
    )
    return [one.row for one in repeats]


def _dedup_ids(frames: Sequence[CheckedFrame]) -> list[bytes | None]:
    return [one for frame in frames for one in (frame.dedup_ids or (None,) * frame.rows)]


def _superseded(
    later: Mapping[int, int], left_out: Sequence[Repeat], number: PartitionId, next_offset: Offset
) -> list[Repeat]:
    """Return rows that a later one replaces, each with the place of the last of those."""
    absent = sorted({*later, *(repeat.row for repeat in left_out)})
    found: list[Repeat] = []
    for row, by in later.items():
        last = by
        while last in later:
            last = later[last]
        found.append(Repeat(row, number, Offset(next_offset + last - bisect_left(absent, last))))
    return found
