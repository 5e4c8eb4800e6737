"""What a ledger sees of its partition.

Shape: codec.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.limits import PRIORITIES
from goqueue.core.record.message import Priority


class View(NamedTuple):
    """The range of visible messages, their lanes, and what may not be delivered (yet)."""

    start_offset: Offset
    end_offset: Offset
    lanes: Sequence[BitMap64]
    """Messages by priority; the normal lane is what is in no other."""
    hidden: BitMap64
    cancelled: BitMap64

    def urgent_lanes(self) -> list[int]:
        """Return the lanes beside the normal one that have any message."""
        return [lane for lane in range(PRIORITIES) if lane != Priority.NORMAL and self.lanes[lane]]

    def visible(self, offsets: BitMap64) -> BitMap64:
        """Return those of some messages that may be read yet.

        A leader that begins may know of less than was handed out before, until its replicas
        have told what they have.
        """
        if not offsets or offsets.max() < self.end_offset:
            return offsets
        seen = offsets.copy()
        seen.remove_range(self.end_offset, seen.max() + 1)
        return seen

    def lane_between(self, lane: int, start: int, end: int) -> BitMap64:
        """Return the messages of a lane in a half-open range."""
        window = BitMap64()
        if start >= end:
            return window
        window.add_range(start, end)
        if lane != Priority.NORMAL:
            return window & self.lanes[lane]
        for other in self.urgent_lanes():
            window -= self.lanes[other]
        return window
