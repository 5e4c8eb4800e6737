"""The only module that asks the machine for the time.

Three times are told apart. The *wall* is for people and for the times of messages; anybody may set
it. The *monotonic* one is for deadlines inside one process. *Steady* time is the wall as it was at
start, moved on by a clock that cannot be set; how far the wall was set from it is the *shift*.
"""

import threading
import time
from typing import Final, Protocol

from goqueue.base.units import NS_PER_MS
from goqueue.core.schedule.shifts import Shifts

_NOISE_NS: Final = 2 * NS_PER_MS
"""A smaller difference between two clocks is how they are read, not a change of one."""


class Clock(Protocol):
    """Source of time: the wall's for people, the monotonic for deadlines, steady for waiting."""

    def now_us(self) -> int:
        """Return microseconds since the Unix epoch by the wall clock."""
        ...

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch by the wall clock."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment, never going back."""
        ...

    def steady_ms(self) -> int:
        """Return what the wall clock would show if nobody had set it since the start."""
        ...

    def shift_ms(self) -> int:
        """Return how far the wall clock was set ahead of steady time; below zero if back."""
        ...

    def due_ms(self) -> int:
        """Return the earlier of the wall clock and steady time."""
        ...

    def latest_ms(self) -> int:
        """Return the later of the wall clock and steady time."""
        ...

    def expiry_ms(self, window_ms: int) -> int:
        """Return the time by which to judge whether something is older than a window.

        What was stamped by the wall clock and has really waited for less than the window is never
        older than it by this time, however the wall clock was set meanwhile.
        """
        ...


class SystemClock:
    """The clocks of the machine. A new one, as a new process has it, trusts the wall."""

    def __init__(self) -> None:
        self._steady_from_ns = time.time_ns() - _boot_ns()
        self._shifts = Shifts()
        # Guards the changes of the shift: threads that open partitions ask for it, too.
        self._noting = threading.Lock()

    def now_us(self) -> int:
        """Return microseconds since the Unix epoch by the wall clock."""
        return time.time_ns() // 1_000

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch by the wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment, never going back."""
        return time.monotonic_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Return what the wall clock would show if nobody had set it since the start."""
        return (self._steady_from_ns + _boot_ns()) // NS_PER_MS

    def shift_ms(self) -> int:
        """Return how far the wall clock was set ahead of steady time; below zero if back."""
        before_ns = self._steady_from_ns + _boot_ns()
        wall_ns = time.time_ns()
        after_ns = self._steady_from_ns + _boot_ns()
        known_ns = self._shifts.last_ms * NS_PER_MS
        is_known = wall_ns - after_ns - _NOISE_NS <= known_ns <= wall_ns - before_ns + _NOISE_NS
        if not is_known:
            # Rounded down: by a millisecond too late, never too early.
            shift_ms = (wall_ns - after_ns) // NS_PER_MS
            with self._noting:
                self._shifts.note(shift_ms, steady_ms=self.steady_ms())
        return self._shifts.last_ms

    def due_ms(self) -> int:
        """Return the earlier of the wall clock and steady time."""
        return min(time.time_ns(), self._steady_from_ns + _boot_ns()) // NS_PER_MS

    def latest_ms(self) -> int:
        """Return the later of the wall clock and steady time, by the shift as last looked at.

        Asked for every publish: one clock is read, not two.
        """
        return time.time_ns() // NS_PER_MS - min(self._shifts.last_ms, 0)

    def expiry_ms(self, window_ms: int) -> int:
        """Return the time by which to judge whether something is older than a window."""
        self.shift_ms()
        steady_ms = self.steady_ms()
        return steady_ms + self._shifts.lowest_ms(since_ms=steady_ms - window_ms)


def _boot_ns() -> int:
    """Return nanoseconds that also pass while the machine sleeps, where the system can tell."""
    return time.monotonic_ns() if _BOOT_CLOCK is None else time.clock_gettime_ns(_BOOT_CLOCK)


_BOOT_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
