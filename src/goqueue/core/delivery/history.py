"""The failed deliveries of the messages that had any.

Shape: calculator.
"""

from typing import Final

from pyroaring import BitMap64

from goqueue.base.units import MiB
from goqueue.core.delivery.events import AttemptKept, HistoryKept
from goqueue.core.offset_sets import each

ATTEMPTS_KEPT_MAX: Final = 8
"""Most failed deliveries remembered of one message; the count goes on."""

TEXTS_BYTES_MAX: Final = 2 * MiB
"""Most bytes of different texts in a snapshot; errors beyond that are not kept in words."""


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
        return {offset: self._counts[offset] for offset in each(self.offsets & offsets)}

    def add(self, offsets: BitMap64, *, member: str, error: str, at_ms: int) -> None:
        """Note that messages failed."""
        attempt = AttemptKept(at_ms=at_ms, member=member, error=error)
        self.offsets |= offsets
        for offset in each(offsets):
            known = self._attempts.setdefault(offset, [])
            known.append(attempt)
            del known[:-ATTEMPTS_KEPT_MAX]
            self._counts[offset] = self.count(offset) + 1

    def forget(self, offsets: BitMap64) -> None:
        """Forget messages that are settled."""
        if not self.offsets:
            return
        known = self.offsets & offsets
        for offset in each(known):
            del self._attempts[offset]
            del self._counts[offset]
        self.offsets -= known

    def kept(self) -> tuple[list[HistoryKept], list[str]]:
        """Return everything for a snapshot, each text once."""
        texts: dict[str, int] = {"": 0}
        room = TEXTS_BYTES_MAX

        def place(text: str) -> int:
            nonlocal room
            if text not in texts and len(text) <= room:
                room -= len(text)
                texts[text] = len(texts)
            return texts.get(text, 0)

        history = [
            HistoryKept(
                offset=offset,
                count=self._counts[offset],
                attempts=[(one.at_ms, place(one.member), place(one.error)) for one in attempts],
            )
            for offset, attempts in self._attempts.items()
        ]
        return history, list(texts)

    def restore(self, kept: list[HistoryKept], texts: list[str]) -> None:
        """Take everything from a snapshot."""
        for one in kept:
            self.offsets.add(one.offset)
            self._counts[one.offset] = one.count
            self._attempts[one.offset] = [
                AttemptKept(at_ms=at_ms, member=texts[member], error=texts[error])
                for at_ms, member, error in one.attempts
            ]
