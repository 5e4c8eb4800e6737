"""What readers get of a piece of the log: nothing that is delayed, cancelled or was aborted."""

from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.limits import HIDDEN_RANGES_MAX
from goqueue.core.record.cut import cut_frames
from goqueue.core.record.frame import read_header
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.queue.visibility import PartitionVisibility
from goqueue.storage.log_notes import Gap
from goqueue.storage.log_reader import Piece


class Isolation(NamedTuple):
    """The isolation level of a reader."""

    show_delayed: bool = False
    """Also what is not yet due or was cancelled."""
    is_committed: bool = True
    """Not what transactions wrote that are open or were aborted."""

    def end_of(self, partition: Partition) -> Offset:
        """Return how far one may read a partition."""
        return partition.stable_offset if self.is_committed else partition.visible_offset


PLAIN: Final = Isolation()


class VisibleFrames(NamedTuple):
    """Frames to hand out, where to go on, and the offsets in between that were left out."""

    frames: memoryview
    next_offset: Offset
    hidden: tuple[Gap, ...] = ()


def look(
    queue: PartitionVisibility,
    piece: Piece,
    offset: Offset,
    lens: Isolation = PLAIN,
    *,
    ranges_max: int = HIDDEN_RANGES_MAX,
) -> VisibleFrames:
    """Leave out of a piece that was read from an offset on what a reader does not get.

    What is delayed or cancelled is told; what was aborted never was.
    """
    if not piece.frames or (queue.is_clear and not queue.tx.aborted):
        return VisibleFrames(piece.frames, piece.next_offset)
    # The first frame may begin before the offset: what is hidden there does not go out either.
    first = min(read_header(piece.frames).offset, offset)
    delayed, aborted = hidden_ranges(queue, first, piece.next_offset, lens)
    if delayed is None and aborted is None:
        return VisibleFrames(piece.frames, piece.next_offset)
    next_offset = piece.next_offset
    hidden = [] if delayed is None else ranges_of(delayed, offset)
    unseen = (delayed or BitMap64()) | (aborted or BitMap64())
    if len(hidden) > ranges_max:
        next_offset = hidden[ranges_max].start_offset
        hidden = hidden[:ranges_max]
    keep = BitMap64()
    keep.add_range(offset, next_offset)
    keep -= unseen
    frames = memoryview(b"".join(cut_frames(piece.frames, keep)))
    return VisibleFrames(frames, next_offset, tuple(hidden))


def hidden_ranges(
    queue: PartitionVisibility, start: Offset, end: Offset, lens: Isolation
) -> tuple[BitMap64 | None, BitMap64 | None]:
    """Return what of a range is delayed or cancelled, and what was aborted; None for nothing."""
    return (
        None if lens.show_delayed else queue.unseen(start, end),
        None if not lens.is_committed else queue.aborted(start, end),
    )


def ranges_of(offsets: BitMap64, start_offset: Offset) -> list[Gap]:
    """Return the offsets from one on as half-open ranges."""
    numbers = np.frombuffer(offsets.to_array(), np.int64)
    numbers = numbers[numbers >= start_offset]
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    starts = numbers[np.concatenate(([0], breaks + 1))].tolist()
    ends = (numbers[np.concatenate((breaks, [len(numbers) - 1]))] + 1).tolist()
    return [Gap(Offset(start), Offset(end)) for start, end in zip(starts, ends, strict=True)]
