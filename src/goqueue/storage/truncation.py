"""Cutting the end off a log, as a follower does with what its leader does not have.

A crash at any point leaves a log that ends at the cut or behind it, with indexes that fit. So the
index of the segment that is cut loses its entries first (a short index only costs a scan), then
the segments behind the cut go, the last one first, and then the bytes.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset, Position
from goqueue.storage.disk import Disk
from goqueue.storage.segment import Segment


class Cut(NamedTuple):
    """The segments that stay, and how much of the last of them."""

    segments: int
    size: int
    is_exact: bool = True
    """Whether the last frame that stays ends at the cut. Otherwise offsets before the cut are
    missing here, and a new segment has to begin behind them."""
    drops_rowless: bool = False
    """Whether a frame without messages, which has no offset of its own, lies right at the cut."""


def find_cut(segments: Sequence[Segment], end_offset: Offset) -> Cut:
    """Return where to cut, so that every frame from an offset on goes.

    Frames without messages that lie at the offset go, too: a leader sends them again with what
    follows. Raises if the offset lies inside a frame.
    """
    place = bisect_left(segments, end_offset, key=lambda segment: segment.base_offset) - 1
    if place < 0:
        return Cut(1, 0, drops_rowless=_begins_rowless(segments[0]))
    segment = segments[place]
    reached, position = segment.entry_before(end_offset)
    size, following = int(position), None
    for at, span in segment.scan_past_damage(reached, position):
        if span.header.offset >= end_offset:
            following = at, span
            break
        size, reached = at + span.end - span.start, span.end_offset
    if reached > end_offset:
        raise InvalidRequestError(f"offset {end_offset} lies inside a frame")
    if reached == end_offset:
        is_rowless = following is not None and following[1].rows == 0
        is_rowless = is_rowless or any(map(_begins_rowless, segments[place + 1 : place + 2]))
        return Cut(place + 1, size, drops_rowless=is_rowless)
    if place + 1 < len(segments) and segments[place + 1].base_offset == end_offset:
        is_rowless = _begins_rowless(segments[place + 1])
        return Cut(place + 2, 0, drops_rowless=is_rowless)
    # Bad frames that may hold earlier messages stay where they are.
    size = segment.size if following is None else following[0]
    return Cut(place + 1, size, is_exact=False)


def _begins_rowless(segment: Segment) -> bool:
    first = next(iter(segment.scan(Position(0))), None)
    return first is not None and first[1].rows == 0


def shorten_index(disk: Disk, directory: str, base_offset: Offset, size: int) -> None:
    """Let the index of a segment end before a position, durably, or raise.

    Nothing that has the segment open is changed.
    """
    index = Segment(disk, directory, base_offset).index
    index.cut(index.offsets.count_below(value=size))
    index.save()
