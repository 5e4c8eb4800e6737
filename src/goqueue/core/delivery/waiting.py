"""Messages that wait for their next attempt.

Shape: calculator.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from pyroaring import BitMap64

from goqueue.core.offset_sets import each

HEAP_MIN: Final = 64
"""Fewer entries than these are not worth sweeping."""


class Waiting:
    """Offsets by the time they are due."""

    def __init__(self) -> None:
        self.offsets = BitMap64()
        self._due: dict[int, tuple[int, int]] = {}
        self._heap: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yield offset, due time and backoff."""
        return ((offset, due, backoff) for offset, (due, backoff) in self._due.items())

    def add(self, offsets: Iterable[int], *, due_ms: int, backoff_ms: int) -> None:
        """Let offsets wait."""
        for offset in offsets:
            self.offsets.add(offset)
            self._due[offset] = (due_ms, backoff_ms)
            heapq.heappush(self._heap, (due_ms, offset))
        if len(self._heap) > HEAP_MIN + 2 * len(self._due):
            # Most of those noted wait no longer, or for another time.
            self._heap = sorted((due, offset) for offset, (due, _) in self._due.items())

    def discard(self, offsets: BitMap64) -> None:
        """Let offsets wait no longer."""
        for offset in each(self.offsets & offsets):
            self.offsets.discard(offset)
            del self._due[offset]

    def advance(self, now_ms: int) -> BitMap64:
        """Return those that are due and keep them no longer."""
        woken = BitMap64()
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, offset = heapq.heappop(self._heap)
            if self._due.get(offset, (None,))[0] == due_ms:
                woken.add(offset)
                self.offsets.discard(offset)
                del self._due[offset]
        return woken

    def due_of(self, offset: int) -> int | None:
        """Return when an offset is due."""
        known = self._due.get(offset)
        return None if known is None else known[0]

    def first_due_ms(self) -> int | None:
        """Return when the first is due."""
        while self._heap:
            due_ms, offset = self._heap[0]
            if self._due.get(offset, (None,))[0] == due_ms:
                return due_ms
            heapq.heappop(self._heap)
        return None

    def renew_all(self, now_ms: int) -> None:
        """Let each wait its whole backoff again, after a restart."""
        self._heap = []
        for offset, (_, backoff_ms) in self._due.items():
            self._due[offset] = (now_ms + backoff_ms, backoff_ms)
            heapq.heappush(self._heap, (now_ms + backoff_ms, offset))
