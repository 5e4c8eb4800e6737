"""A clock that moves only when told to."""

from goqueue.base.units import US_PER_MS
from goqueue.core.schedule.shifts import Shifts


class FakeClock:
    """Wall and monotonic clock under the control of a test."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_us = now_ms * US_PER_MS
        self._monotonic_us = 0
        self._steady_us = self._now_us
        self._shifts = Shifts()

    def now_us(self) -> int:
        """Return the time last set, in microseconds."""
        return self._now_us

    def now_ms(self) -> int:
        """Return the time last set, in milliseconds."""
        return self._now_us // US_PER_MS

    def monotonic_ms(self) -> int:
        """Return how far the clock was moved forward."""
        return self._monotonic_us // US_PER_MS

    def steady_ms(self) -> int:
        """Return what the wall clock would show without any jump."""
        return self._steady_us // US_PER_MS

    def shift_ms(self) -> int:
        """Return the sum of all jumps."""
        return self._shifts.last_ms

    def due_ms(self) -> int:
        """Return the earlier of the wall clock and steady time."""
        return min(self._now_us, self._steady_us) // US_PER_MS

    def latest_ms(self) -> int:
        """Return the later of the wall clock and steady time."""
        return max(self._now_us, self._steady_us) // US_PER_MS

    def expiry_ms(self, window_ms: int) -> int:
        """Return the time by which to judge whether something is older than a window."""
        steady_ms = self.steady_ms()
        return steady_ms + self._shifts.lowest_ms(since_ms=steady_ms - window_ms)

    def restart(self) -> None:
        """Trust the wall clock again, as a new process does."""
        self._steady_us = self._now_us
        self._shifts = Shifts()

    def advance(self, duration_ms: int) -> None:
        """Let time pass on both clocks."""
        if duration_ms < 0:
            raise ValueError("time cannot go backwards; use jump for the wall clock")
        self._now_us += duration_ms * US_PER_MS
        self._monotonic_us += duration_ms * US_PER_MS
        self._steady_us += duration_ms * US_PER_MS

    def jump(self, duration_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or a time server may."""
        self._now_us += duration_ms * US_PER_MS
        shift_ms = (self._now_us - self._steady_us) // US_PER_MS
        self._shifts.note(shift_ms, steady_ms=self.steady_ms())
