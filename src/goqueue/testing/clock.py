"""A clock that moves only when told to."""


class FakeClock:
    """Wall and monotonic clock under the control of a test."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_us = now_ms * 1_000
        self._monotonic_us = 0
        self._steady_us = self._now_us

    def now_us(self) -> int:
        """Return the time last set, in microseconds."""
        return self._now_us

    def now_ms(self) -> int:
        """Return the time last set, in milliseconds."""
        return self._now_us // 1_000

    def monotonic_ms(self) -> int:
        """Return how far the clock was moved forward."""
        return self._monotonic_us // 1_000

    def due_ms(self) -> int:
        """Return the earlier of the wall clock and the wall clock nobody has set."""
        return min(self._now_us, self._steady_us) // 1_000

    def restart(self) -> None:
        """Trust the wall clock again, as a new process does."""
        self._steady_us = self._now_us

    def advance(self, duration_ms: int) -> None:
        """Let time pass on both clocks."""
        if duration_ms < 0:
            raise ValueError("time cannot go backwards; use jump for the wall clock")
        self._now_us += duration_ms * 1_000
        self._monotonic_us += duration_ms * 1_000
        self._steady_us += duration_ms * 1_000

    def jump(self, duration_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or a time server may."""
        self._now_us += duration_ms * 1_000
