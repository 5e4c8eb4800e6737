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


class SystemClock:
    """The clock on the wall."""

    def now_us(self) -> int:
        """Return microseconds since the Unix epoch."""
        return time.time_ns() // 1_000

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment, never going back."""
        return time.monotonic_ns() // 1_000_000
