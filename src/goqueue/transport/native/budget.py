"""The memory all requests and replies of all connections may hold.

A connection that begins a large request takes its whole size from the common budget before it reads
on, and waits if there is not enough. Small requests are charged when they are whole; while the
budget is overdrawn nobody reads. Who has a share can always finish, so nobody waits forever.

Replies have a budget of their own: each may take a fraction of what is free. Readers that do not
take theirs so make the others' smaller, but never stop them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from goqueue.base.limits import REPLY_BYTES_MIN

REPLY_FRACTION: Final = 8
"""A reply may take this part of what is free, at most."""


class ByteBudget:
    """Hands out bytes in the order they were asked for."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()

    def __repr__(self) -> str:
        return f"<ByteBudget: {self._free} free, {len(self._queue)} waiting>"

    @property
    def free(self) -> int:
        """Return how many bytes are left; less than none where some were charged beyond."""
        return self._free

    def take(self, size: int, granted: Callable[[], None]) -> bool:
        """Take a share now and return True, or call ``granted`` when it was taken later."""
        if not self._queue and size <= self._free:
            self._free -= size
            return True
        self._queue.append((size, granted))
        return False

    def charge(self, size: int) -> None:
        """Take bytes that are already there, overdrawing if need be; a negative size gives back."""
        self._free -= size

    def give_back(self, size: int) -> None:
        """Return a share and serve those who wait."""
        self._free += size
        while self._queue and self._queue[0][0] <= self._free:
            wanted, granted = self._queue.popleft()
            self._free -= wanted
            granted()


class ReplyRoom:
    """What one reply holds of a budget, from being read until it has left the broker."""

    __slots__ = ("_budget", "_held")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    async def take(self, wanted: int) -> int:
        """Return how many bytes may be read; waits only while the budget is overdrawn."""
        turn = asyncio.Event()
        if not self._budget.take(0, turn.set):
            await turn.wait()
        share = min(wanted, max(self._budget.free // REPLY_FRACTION, REPLY_BYTES_MIN))
        self.keep(share)
        return share

    def keep(self, size: int) -> None:
        """Hold just so many bytes: what was really read."""
        change = size - self._held
        self._held = size
        self._budget.give_back(-change)

    def release(self) -> None:
        """Hold nothing any more."""
        self.keep(0)
