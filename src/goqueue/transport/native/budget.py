"""The memory that requests and replies of all connections may hold, each kind with its budget.

Bytes count when they are really there: a declared size reserves nothing. Where none are left, the
others wait and the first of them goes beyond the budget, one at a time. So no two wait for each
other, and a client that stalls with its hands full slows the others down for a while at most.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from goqueue.base.limits import REPLY_BYTES_MIN
from goqueue.service.service import Turns

REPLY_FRACTION: Final = 8
"""A reply may take this part of what is free, at most: the fuller the budget, the smaller it is."""


class ByteBudget:
    """Counts bytes, and lets those who wait for some go on in the order they came."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._queue: deque[Callable[[], None]] = deque()
        self._turn: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<ByteBudget: {self._free} free, {len(self._queue)} waiting>"

    @property
    def free(self) -> int:
        """Return how many bytes are left; less than none while somebody goes beyond."""
        return self._free

    @property
    def is_crowded(self) -> bool:
        """Tell whether somebody waits."""
        return bool(self._queue)

    def charge(self, size: int) -> None:
        """Count bytes that are there now."""
        self._free -= size

    def give_back(self, size: int) -> None:
        """Count bytes that are gone, and let others go on."""
        self._free += size
        self._admit()

    def wait(self, granted: Callable[[], None]) -> None:
        """Call ``granted`` when bytes are left, or it is its turn to go beyond; then ``leave``."""
        self._queue.append(granted)
        self._admit()

    def leave(self, granted: Callable[[], None]) -> None:
        """Stop waiting, or pass the turn on."""
        if self._turn == granted:
            self._turn = None
        else:
            with contextlib.suppress(ValueError):
                self._queue.remove(granted)
        self._admit()

    def _admit(self) -> None:
        while self._queue and (self._free > 0 or self._turn is None):
            granted = self._queue.popleft()
            if self._free <= 0:
                self._turn = granted
            granted()


class ReplyRoom:
    """What one reply holds of a budget, from being read until it has left the broker."""

    __slots__ = ("_budget", "_held", "_is_over", "_turn", "_turns", "_until_turn")

    def __init__(
        self,
        budget: ByteBudget,
        turns: Turns | None = None,
        until_turn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._budget = budget
        self._turns = turns or Turns()
        self._until_turn = until_turn or self._turns.take
        self._held = 0
        self._is_over = False
        self._turn: asyncio.Event | None = None

    @property
    def is_free(self) -> bool:
        """Whether ``take`` would return without waiting."""
        return self._budget.free > 0

    async def turn(self) -> None:
        """Return when it is this connection's turn to read much, and it takes replies."""
        await self._until_turn()

    async def take(self, wanted: int) -> int:
        """Return how many bytes may be read; waits only while none are left."""
        if self._budget.free <= 0 and self._turn is None:
            self._turn = asyncio.Event()
            self._budget.wait(self._turn.set)
            await self._turn.wait()
            # Many may have waited, and bytes that come back let all of them go on.
            await self._turns.take()
        share = min(wanted, max(self._budget.free // REPLY_FRACTION, REPLY_BYTES_MIN))
        self.keep(share)
        return share

    def keep(self, size: int) -> None:
        """Hold just so many bytes: what was really read. Behind ``release`` nothing is held."""
        if self._is_over:
            return
        self._budget.charge(size - self._held)
        self._held = size
        if size == 0:
            # Nothing was read: whoever waits for news must not keep others from their turn.
            self._leave()

    def release(self) -> None:
        """Hold nothing any more, and let others go on."""
        held, self._held = self._held, 0
        self._is_over = True
        self._budget.give_back(held)
        turn = self._turn
        self._leave()
        if turn is not None:
            # What still waits for its turn reads nothing that is kept.
            turn.set()

    def _leave(self) -> None:
        if self._turn is not None:
            self._budget.leave(self._turn.set)
            self._turn = None
