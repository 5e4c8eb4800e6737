"""How many messages may go now, at so many a second.

Shape: calculator. A bucket that holds a tenth of a second's worth: what was not used is not saved.
"""

from typing import Final

from goqueue.base.units import SECOND_MS

BURSTS_PER_SECOND: Final = 10


class Pace:
    """Tokens that come back with time; 0 a second means as fast as it goes."""

    def __init__(self, per_second: int, *, now_ms: int) -> None:
        self._per_second = per_second
        self._most = max(per_second // BURSTS_PER_SECOND, 1) * SECOND_MS
        self._tokens = self._most
        self._at_ms = now_ms

    def allowed(self, count: int, *, now_ms: int) -> int:
        """Return how many of so many messages may go now."""
        if not self._per_second:
            return count
        # Thousandths of a token, so that slow rates lose nothing to rounding.
        passed_ms = max(now_ms - self._at_ms, 0)
        self._tokens = min(self._tokens + passed_ms * self._per_second, self._most)
        self._at_ms = now_ms
        return min(count, self._tokens // SECOND_MS)

    def spend(self, count: int) -> None:
        """Take notice that so many went."""
        if self._per_second:
            self._tokens -= count * SECOND_MS

    def wait_ms(self) -> int:
        """Return how long until at least one more may go."""
        missing = SECOND_MS - self._tokens
        return -(-missing // self._per_second) if self._per_second and missing > 0 else 0
