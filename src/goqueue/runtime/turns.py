"""Turns of the event loop: large pieces of work go one at a time, others run between them.

A request that moves many bytes holds the event loop for milliseconds. Where hundreds of them are
ready at once, all others would wait for the sum of them. So a large piece of work begins with
``take``: one is let through in each pass of the loop, in the order they came, and what is small
(which does not ask) waits for one piece in each pass at most.
"""

import asyncio
from collections import deque
from typing import Final

from goqueue.base.units import KiB

TURN_BYTES: Final = 64 * KiB
"""Work on fewer bytes takes no turn: it is done in less time than a turn is waited for."""

TURN_MESSAGES: Final = 100
"""The same for messages: each costs as much as many bytes."""


class Turns:
    """Lets one large piece of work through in each pass of the event loop."""

    def __init__(self) -> None:
        self._line: deque[asyncio.Future[None]] = deque()
        self._is_taken = False
        """Whether the turn was taken in this pass of the loop."""

    def __repr__(self) -> str:
        return f"<Turns: {len(self._line)} wait>"

    async def take(self) -> None:
        """Return when it is the caller's turn to work until its next ``await``."""
        loop = asyncio.get_running_loop()
        if not self._is_taken:
            self._is_taken = True
            loop.call_soon(self._pass_on, loop)
            return
        turn = loop.create_future()
        self._line.append(turn)
        await turn

    async def take_for(self, *, size: int, messages: int = 0) -> None:
        """Do the same, unless the work is so small that it needs no turn."""
        if size > TURN_BYTES or messages > TURN_MESSAGES:
            await self.take()

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._line:
            turn = self._line.popleft()
            # Whoever was cancelled meanwhile does not hold up the others.
            if not turn.done():
                turn.set_result(None)
                # Behind the work that was just let through: the next one is of the next pass.
                loop.call_soon(self._pass_on, loop)
                return
        self._is_taken = False
