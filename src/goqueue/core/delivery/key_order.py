"""The order of keys: which message of each key is the first that is not settled.

Shape: calculator. Built by looking at the log from the committed offset on, so it is not stored.
Only the first message of a key may be delivered; those without a key may at any time. A key is
known by its number alone: two keys of one number are one line, which keeps both in
order.
"""

import numpy as np
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.core.delivery.key_lines import KeyLines
from goqueue.core.delivery.key_numbers import NO_KEY, STEP
from goqueue.core.delivery.runs import Numbers, array_of, set_from


class KeyOrder:
    """Knows the unsettled messages that were looked at, by key."""

    def __init__(self, offset: Offset, *, lines: KeyLines | None = None) -> None:
        self.looked_offset = offset
        """Everything before it has been looked at."""
        self.heads = BitMap64()
        """Messages no earlier message of their key stands before."""
        self._lines = KeyLines() if lines is None else lines

    def __repr__(self) -> str:
        return (
            f"<KeyOrder up to {self.looked_offset}: {len(self.heads)} heads, {len(self)} in line>"
        )

    def __len__(self) -> int:
        """Return how many messages with a key there are, heads and those behind them."""
        return len(self._lines)

    @property
    def size_bytes(self) -> int:
        """Return the memory that the lines take."""
        return self._lines.size_bytes

    def look(
        self, offsets: Numbers, numbers: Numbers, settled: BitMap64, *, end_offset: int = 0
    ) -> None:
        """Take notice of messages, ascending, and the numbers of their keys.

        Those already settled do not count, and from the last to the end there are none.
        """
        self.looked_offset = Offset(max(self.looked_offset, end_offset))
        if not len(offsets):
            return
        start, end = int(offsets[0]), int(offsets[-1]) + 1
        self.looked_offset = Offset(max(self.looked_offset, end))
        if settled and settled.range_cardinality(start, end):
            window = BitMap64()
            window.add_range(start, end)
            rest = np.isin(offsets, array_of(window & settled), invert=True, assume_unique=True)
            offsets, numbers = offsets[rest], numbers[rest]
        has_none = numbers == NO_KEY
        if has_none.any():
            self._add_heads(offsets[has_none])
            offsets, numbers = offsets[~has_none], numbers[~has_none]
        for at in range(0, len(offsets), STEP):
            heads = self._lines.join(offsets[at : at + STEP], numbers[at : at + STEP])
            self._add_heads(np.sort(heads))

    def settle(self, offsets: BitMap64) -> None:
        """Let the next messages of their keys move up."""
        heads = self.heads & offsets
        self.heads -= heads
        following = self._lines.settle(offsets, heads)
        following.sort()
        self._add_heads(following)

    def _add_heads(self, offsets: Numbers) -> None:
        if len(offsets):
            self.heads |= set_from(offsets)
