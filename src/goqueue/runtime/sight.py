"""What plain readers get of a piece of the log: not what is delayed, and not what was cancelled."""

from typing import NamedTuple

import numpy as np
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.limits import HIDDEN_RANGES_MAX
from goqueue.core.record.cut import cut_frames
from goqueue.core.record.frame import read_header
from goqueue.runtime.queue_index import QueueIndex
from goqueue.storage.log_reader import Piece
from goqueue.storage.partition_log import Gap


class Sight(NamedTuple):
    """Frames to hand out, where to go on, and the offsets in between that were left out."""

    frames: memoryview
    next_offset: Offset
    hidden: tuple[Gap, ...] = ()


def look(
    queue: QueueIndex, piece: Piece, offset: Offset, *, ranges_max: int = HIDDEN_RANGES_MAX
) -> Sight:
    """Leave out of a piece that was read from an offset on what plain readers do not get."""
    if not piece.frames or queue.is_clear:
        return Sight(piece.frames, piece.next_offset)
    # The first frame may begin before the offset: what is hidden there does not go out either.
    first = min(read_header(piece.frames).offset, offset)
    unseen = queue.unseen(first, piece.next_offset)
    if unseen is None:
        return Sight(piece.frames, piece.next_offset)
    next_offset = piece.next_offset
    hidden = ranges_of(unseen, offset)
    if len(hidden) > ranges_max:
        next_offset = hidden[ranges_max].start_offset
        hidden = hidden[:ranges_max]
    keep = BitMap64()
    keep.add_range(offset, next_offset)
    keep -= unseen
    frames = memoryview(b"".join(cut_frames(piece.frames, keep)))
    return Sight(frames, next_offset, tuple(hidden))


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
