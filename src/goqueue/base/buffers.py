"""Large buffers that are used again: fresh pages cost more than what is read into them.

Whoever holds a view of a buffer keeps it; when the last view is gone it is lent to the next. So a
view may be handed on without telling anybody, as Arrow does with the columns that lie in it.
"""

import weakref

import numpy as np
from numpy.typing import NDArray

from goqueue.base.units import KiB

_ROUND_BYTES = 64 * KiB
"""Sizes are rounded up to this, so that a buffer fits the next one of about the same size."""

Memory = NDArray[np.uint8]


class BufferPool:
    """Lends memory that is not cleared, and keeps a little of what comes back. Any thread."""

    def __init__(self, *, kept_max: int, kept_bytes_max: int) -> None:
        self._kept_max = kept_max
        self._kept_bytes_max = kept_bytes_max
        self._kept: list[Memory] = []

    def __repr__(self) -> str:
        return f"<BufferPool: {[len(memory) for memory in self._kept]}>"

    def take(self, size: int) -> memoryview:
        """Return a view of so many bytes, whatever is in them."""
        if size < _ROUND_BYTES:
            return np.empty(size, np.uint8).data
        try:
            # Taking from a list is atomic, so threads get different buffers.
            memory = self._kept.pop()
        except IndexError:
            memory = _EMPTY
        # Much larger than asked for, it would hold memory that nobody counts.
        if not size <= len(memory) <= size + size // 4 + _ROUND_BYTES:
            self._give_back(memory)
            memory = np.empty(-(-size // _ROUND_BYTES) * _ROUND_BYTES, np.uint8)
        view = memory[:size]
        weakref.finalize(view, self._give_back, memory).atexit = False
        return view.data

    def _give_back(self, memory: Memory) -> None:
        if 0 < len(memory) <= self._kept_bytes_max:
            # The one that came first goes: sizes that are no longer asked for do not stay.
            self._kept.append(memory)
            del self._kept[: -self._kept_max]


_EMPTY: Memory = np.empty(0, np.uint8)
