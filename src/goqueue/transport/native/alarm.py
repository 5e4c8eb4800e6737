"""A timer that is set, set again and stopped many times and rings at most once for each setting."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls ``ring`` when the time it was last set for is over."""

    __slots__ = ("_ring", "_timer")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Tell whether it will ring."""
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """Ring so many seconds from now, and not at the time set before."""
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._over)

    def stop(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        self._ring()
