"""The failed deliveries of the messages that had any.

Shape: calculator.
"""

from typing import Final

from pyroaring import BitMap64

from goqueue.core.delivery.events import AttemptKept, HistoryKept

ATTEMPTS_KEPT_MAX: Final = 32
"""Most failed deliveries remembered of one message; the count goes on."""


class Histories:
    """Knows how often, when and why each message failed."""

    def __init__(self) -> None:
        self.offsets = BitMap64()
        """Messages that failed at least once."""
        self._attempts: dict[int, list[AttemptKept]] = {}
        self._counts: dict[int, int] = {}

    def count(self, offset: int) -> int:
        """Return how often a message failed."""
        return self._counts.get(offset, 0)

    def attempts(self, offset: int) -> list[AttemptKept]:
        """Return the latest failures of a message."""
        return self._attempts.get(offset, [])

    def counts_among(self, offsets: BitMap64) -> dict[int, int]:
        """Return the failures of those among some offsets that had any."""
        if not self.offsets:
            return {}
        return {offset: self._counts[offset] for offset in self.offsets & offsets}

    def add(self, offsets: BitMap64, *, member: str, error: str, at_ms: int) -> None:
        """Note that messages failed."""
        attempt = AttemptKept(at_ms=at_ms, member=member, error=error)
        self.offsets |= offsets
        for offset in offsets:
            known = self._attempts.setdefault(offset, [])
            known.append(attempt)
            del known[:-ATTEMPTS_KEPT_MAX]
            self._counts[offset] = self.count(offset) + 1

    def forget(self, offsets: BitMap64) -> None:
        """Forget messages that are settled."""
        if not self.offsets:
            return
        known = self.offsets & offsets
        for offset in known:
            del self._attempts[offset]
            del self._counts[offset]
        self.offsets -= known

    def kept(self) -> list[HistoryKept]:
        """Return everything, for a snapshot."""
        return [
            HistoryKept(offset=offset, count=self._counts[offset], attempts=list(attempts))
            for offset, attempts in self._attempts.items()
        ]

    def restore(self, kept: list[HistoryKept]) -> None:
        """Take everything from a snapshot."""
        for one in kept:
            self.offsets.add(one.offset)
            self._counts[one.offset] = one.count
            self._attempts[one.offset] = list(one.attempts)
