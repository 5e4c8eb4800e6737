"""The memory all requests of all connections may hold, from their first byte to their reply.

A connection that begins a large request takes its whole size from the common budget before it reads
on, and waits if there is not enough. Small requests are charged when they are whole; while the
budget is overdrawn nobody reads. Who has a share can always finish, so nobody waits forever.
"""

from collections import deque
from collections.abc import Callable


class ByteBudget:
    """Hands out bytes in the order they were asked for."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()

    def __repr__(self) -> str:
        return f"<ByteBudget: {self._free} free, {len(self._queue)} waiting>"

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Take a share now and return True, or call ``granted`` when it was taken later."""
        if not self._queue and size <= self._free:
            self._free -= size
            return True
        self._queue.append((size, granted))
        return False

    def charge(self, size: int) -> None:
        """Take bytes that are already there, overdrawing if need be; a negative size returns some."""
        self._free -= size

    def give_back(self, size: int) -> None:
        """Return a share and serve those who wait."""
        self._free += size
        while self._queue and self._queue[0][0] <= self._free:
            wanted, granted = self._queue.popleft()
            self._free -= wanted
            granted()
