"""An alarm that is set and stopped with every request, and mostly costs no timer."""

import asyncio
from collections.abc import Callable


class IdleAlarm:
    """Rings once, unless it is stopped in time.

    A timer that runs is kept when the alarm is stopped: set again, it is only put off.
    """

    __slots__ = ("_due", "_loop", "_ring", "_seconds", "_timer")

    def __init__(self, seconds: float, ring: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._ring = ring
        self._due: float | None = None
        """When it rings, by the clock of the loop."""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<IdleAlarm of {self._seconds} s: {'set' if self._due is not None else 'stopped'}>"

    def start(self) -> None:
        """Begin to wait; what has begun is not put off."""
        if self._due is None:
            self._due = self._loop.time() + self._seconds
            if self._timer is None:
                self._timer = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        """Do not ring."""
        self._due = None

    def close(self) -> None:
        """Do not ring, and let go of everything."""
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._look)
        else:
            self._due = None
            self._ring()
