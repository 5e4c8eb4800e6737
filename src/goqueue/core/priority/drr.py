"""Shares of service: deficit round robin over the lanes, with a limit to how long one waits.

Shape: calculator. A lane with messages is served so many in a row as its weight says, then the next
one; what one call could not use up is left for the next. A lane that has had messages and no
service for ``STARVATION_MS`` is given one at once.
"""

from collections.abc import Sequence
from typing import Final

from goqueue.base.limits import PRIORITIES
from goqueue.base.units import SECOND_MS

WEIGHTS: Final = (50, 25, 15, 7, 3)
STARVATION_MS: Final = 30 * SECOND_MS
assert len(WEIGHTS) == PRIORITIES

Share = tuple[int, int]
"""A lane and how many messages in a row it gets."""


class LaneShares:
    """Remembers whose turn it is and what is left of it."""

    __slots__ = ("_lane", "_left", "_served_ms", "promoted")

    def __init__(self, *, now_ms: int) -> None:
        self._lane = 0
        self._left = WEIGHTS[0]
        self._served_ms = [now_ms] * PRIORITIES
        self.promoted = 0
        """How often a lane was served because it had waited too long."""

    def note_alone(self, *, now_ms: int) -> None:
        """Take note that one lane at most has messages: no other waits for service."""
        self._served_ms = [now_ms] * PRIORITIES

    def share(self, available: Sequence[int], limit: int, *, now_ms: int) -> list[Share]:
        """Share out up to ``limit`` places among what is available in each lane."""
        lanes = [lane for lane, ready in enumerate(available) if ready]
        if len(lanes) <= 1:
            self.note_alone(now_ms=now_ms)
            return [(lane, min(available[lane], limit)) for lane in lanes]
        rest = list(available)
        shares = self._promote(rest, limit, now_ms=now_ms)
        limit -= len(shares)
        while limit > 0 and any(rest):
            count = min(self._left, rest[self._lane], limit)
            if count:
                shares.append((self._lane, count))
                self._served_ms[self._lane] = now_ms
                rest[self._lane] -= count
                self._left -= count
                limit -= count
            if not self._left or not rest[self._lane]:
                self._next_lane()
        return shares

    def _next_lane(self) -> None:
        self._lane = (self._lane + 1) % PRIORITIES
        self._left = WEIGHTS[self._lane]

    def _promote(self, rest: list[int], limit: int, *, now_ms: int) -> list[Share]:
        shares: list[Share] = []
        for lane in range(PRIORITIES):
            if not rest[lane]:
                self._served_ms[lane] = now_ms
            elif now_ms - self._served_ms[lane] >= STARVATION_MS and len(shares) < limit:
                shares.append((lane, 1))
                rest[lane] -= 1
                self._served_ms[lane] = now_ms
                self.promoted += 1
        return shares
