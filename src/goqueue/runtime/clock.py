"""The only module that asks the machine for the time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time: the wall's for people and retention, the monotonic for deadlines."""

    def now_us(self) -> int:
        """Return microseconds since the Unix epoch."""
        ...

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment, never going back."""
        ...

    def due_ms(self) -> int:
        """Return milliseconds since the Unix epoch that a wall set forward does not hurry."""
        ...


class SystemClock:
    """The clock on the wall.

    What waits for a time of day is due when both the wall and the wall as it was at start, moved on
    by a clock nobody can set, say so. Set forward it releases nothing early; set back, late.
    """

    def __init__(self) -> None:
        self._steady_from_ns = time.time_ns() - _steady_ns()

    def now_us(self) -> int:
        """Return microseconds since the Unix epoch."""
        return time.time_ns() // 1_000

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment, never going back."""
        return time.monotonic_ns() // 1_000_000

    def due_ms(self) -> int:
        """Return milliseconds since the Unix epoch that a wall set forward does not hurry."""
        return min(time.time_ns(), self._steady_from_ns + _steady_ns()) // 1_000_000


def _steady_ns() -> int:
    """Return nanoseconds that also pass while the machine sleeps, where the system can tell."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if boot_clock is None else time.clock_gettime_ns(boot_clock)
