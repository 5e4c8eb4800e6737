"""Which messages are next: the lanes' fresh messages behind their cursors, and those given back.

Shape: calculator. Set arithmetic over a window that grows only as far as it must:

    ready(lane) = lane & window - done - delayed - cancelled
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap64

from goqueue.base.limits import PRIORITIES
from goqueue.core.delivery.runs import Written, array_of, set_from, written_in, written_of
from goqueue.core.delivery.view import View
from goqueue.core.priority.drr import Share
from goqueue.core.record.message import Priority

WINDOW_MIN = 256


class Fresh(NamedTuple):
    """The next messages of a lane that were never handed out, and how far was looked for them."""

    offsets: BitMap64
    looked_offset: int


class Pick(NamedTuple):
    """Messages to deliver, in order, and what was passed on the way to them."""

    offsets: BitMap64
    order: Written
    cursors: tuple[int, ...]
    missed: BitMap64
    cancelled: BitMap64


def find_fresh(view: View, lane: int, cursor: int, limit: int, done: BitMap64) -> Fresh:
    """Return up to ``limit`` deliverable messages of a lane at or behind its cursor."""
    if lane != Priority.NORMAL:
        return _find_urgent(view, lane, cursor, limit, done)
    found = BitMap64()
    at, width = cursor, max(limit, WINDOW_MIN)
    while len(found) < limit and at < view.end_offset:
        end = min(at + width, view.end_offset)
        found |= _deliverable(view, view.lane_between(lane, at, end), done)
        at, width = end, width * 4
    return _first(found, limit, at)


def find_run(view: View, cursor: int, limit: int, done: BitMap64) -> tuple[int, int] | None:
    """Return the next messages as a half-open range, where nothing but the offset decides."""
    if view.hidden or view.cancelled or any(view.lanes):
        return None
    if done and done.max() >= cursor:
        return None
    return cursor, min(cursor + limit, max(view.end_offset, cursor))


def _find_urgent(view: View, lane: int, cursor: int, limit: int, done: BitMap64) -> Fresh:
    offsets = view.lanes[lane]
    if not offsets or offsets.max() < cursor:
        return Fresh(BitMap64(), view.end_offset)
    rest = offsets & _from(cursor, view.end_offset)
    return _first(_deliverable(view, rest, done), limit, view.end_offset)


def _from(start: int, end: int) -> BitMap64:
    window = BitMap64()
    if start < end:
        window.add_range(start, end)
    return window


def _deliverable(view: View, window: BitMap64, done: BitMap64) -> BitMap64:
    for left_out in (view.hidden, view.cancelled, done):
        if left_out:
            window -= left_out
    return window


def _first(found: BitMap64, limit: int, looked: int) -> Fresh:
    if len(found) <= limit:
        return Fresh(found, looked)
    last = found[limit - 1]
    found.remove_range(last + 1, found.max() + 1)
    return Fresh(found, last + 1)


def split_lanes(view: View, offsets: BitMap64) -> list[BitMap64]:
    """Return a set of offsets by lane."""
    split = [BitMap64() for _ in range(PRIORITIES)]
    rest = offsets.copy()
    for lane in view.urgent_lanes():
        split[lane] = rest & view.lanes[lane]
        rest -= split[lane]
    split[Priority.NORMAL] = rest
    return split


def put_in_order(shares: Sequence[Share], lanes: Sequence[BitMap64]) -> tuple[BitMap64, Written]:
    """Return what the shares take of each lane, as a set and in the order of delivery."""
    taken = [0] * PRIORITIES
    if len(shares) == 1:
        lane, count = shares[0]
        offsets = _first(lanes[lane].copy(), count, 0).offsets
        return offsets, written_of(offsets)
    parts: list[np.ndarray] = []
    arrays = {lane: array_of(lanes[lane]) for lane in {lane for lane, _ in shares}}
    for lane, count in shares:
        parts.append(arrays[lane][taken[lane] : taken[lane] + count])
        taken[lane] += count
    if not parts:
        return BitMap64(), []
    line = np.concatenate(parts)
    return set_from(np.sort(line)), written_in(line)
