"""How fast replicas that are not in sync may catch up, so that publishers keep their share.

Shape: calculator, a token bucket. Bytes are granted before they are read; what was granted and not
used is given back.
"""

from typing import Final

_SECOND_MS: Final = 1_000


class TokenBucket:
    """Grants bytes at a rate, with a burst of at most ``burst_bytes`` after a pause."""

    __slots__ = ("_burst", "_rate", "_then_ms", "_tokens")

    def __init__(self, *, bytes_per_second: int, burst_bytes: int, now_ms: int) -> None:
        assert bytes_per_second > 0, "nothing would ever be granted"
        assert burst_bytes > 0, "nothing would ever be granted"
        self._rate = bytes_per_second
        self._burst = burst_bytes * _SECOND_MS
        self._tokens = self._burst
        self._then_ms = now_ms

    def __repr__(self) -> str:
        return f"<TokenBucket of {self._rate} bytes/s: {self._tokens // _SECOND_MS} left>"

    def set_rate(self, bytes_per_second: int, *, now_ms: int) -> None:
        """Grant at another rate from now on."""
        assert bytes_per_second > 0, "nothing would ever be granted"
        self._refill(now_ms)
        self._rate = bytes_per_second

    def take(self, wanted_bytes: int, *, now_ms: int) -> int:
        """Return how many of the bytes may be moved now, none if the bucket is empty.

        The last grant may exceed what is left by ``give_back`` of less than nothing: a frame that
        was larger than its grant is paid for later.
        """
        self._refill(now_ms)
        granted = max(min(wanted_bytes, self._tokens // _SECOND_MS), 0)
        self._tokens -= granted * _SECOND_MS
        return granted

    def give_back(self, unused_bytes: int) -> None:
        """Return what was granted and not used; a negative number is what was used beyond it."""
        self._tokens = min(self._tokens + unused_bytes * _SECOND_MS, self._burst)

    def ready_ms(self, *, now_ms: int) -> int:
        """Return when at least one byte can be granted."""
        self._refill(now_ms)
        missing = _SECOND_MS - self._tokens
        return now_ms if missing <= 0 else now_ms - (-missing // self._rate)

    def _refill(self, now_ms: int) -> None:
        # Tokens are thousandths of a byte, so that no rate is lost in rounding. A clock that goes
        # back grants nothing until it is where it was.
        if now_ms > self._then_ms:
            gained = (now_ms - self._then_ms) * self._rate
            self._tokens = min(self._tokens + gained, self._burst)
            self._then_ms = now_ms
