"""How rebalances went: counts, reasons and durations.

Shape: calculator. Counted from the start of the broker; none of it is needed to go on.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from goqueue.core.groups.events import (
    Deleted,
    Emptied,
    Event,
    RebalanceBegun,
    RebalanceCompleted,
    Revoked,
)

AVERAGE_WEIGHT: Final = 0.3
"""What the latest duration counts in the moving average."""


class Tally:
    """Counts the rebalances of one group, or of all of them."""

    def __init__(self) -> None:
        self.total = 0
        self.successful = 0
        self.failed = 0
        """Overtaken by another change before they were completed."""
        self.revoked = 0
        self.assigned = 0
        self.timeouts = 0
        """Members whose partitions had to be taken."""
        self.last_duration_ms = 0
        self.average_duration_ms = 0.0
        self.last_ms: int | None = None
        """When the last one was completed, by the clock on the wall."""
        self.by_reason: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<Tally of {self.total} rebalances, {self.successful} successful>"

    def begin(self, reason: str) -> None:
        """Count a rebalance that begins."""
        self.total += 1
        self.by_reason[reason] += 1

    def complete(self, *, duration_ms: int, now_ms: int) -> None:
        """Count one that was completed."""
        is_first = self.successful == 0
        self.successful += 1
        self.last_duration_ms = duration_ms
        self.last_ms = now_ms
        weight = 1.0 if is_first else AVERAGE_WEIGHT
        self.average_duration_ms += weight * (duration_ms - self.average_duration_ms)

    def move(self, *, revoked: int, assigned: int) -> None:
        """Count partitions that changed hands."""
        self.revoked += revoked
        self.assigned += assigned


class Stopwatch:
    """Follows the rebalances of one group through its events and tells tallies of them."""

    def __init__(self, tallies: Iterable[Tally]) -> None:
        self._tallies = tuple(tallies)
        self._began_ms: int | None = None

    def resume(self, *, now_ms: int) -> None:
        """Take up a rebalance that a restart has cut short."""
        self._began_ms = now_ms

    def follow(self, events: Iterable[Event], *, now_ms: int, wall_ms: int) -> list[int]:
        """Count what happened; return how long each completed rebalance took."""
        durations: list[int] = []
        for event in events:
            if isinstance(event, RebalanceBegun | Emptied | Deleted):
                self._give_up()
            if isinstance(event, RebalanceBegun):
                self._begin(event.reason, now_ms=now_ms)
            elif isinstance(event, RebalanceCompleted):
                durations.append(self._complete(now_ms=now_ms, wall_ms=wall_ms))
            elif isinstance(event, Revoked) and event.is_forced:
                for tally in self._tallies:
                    tally.timeouts += 1
        return durations

    def _begin(self, reason: str, *, now_ms: int) -> None:
        self._began_ms = now_ms
        for tally in self._tallies:
            tally.begin(reason)

    def _complete(self, *, now_ms: int, wall_ms: int) -> int:
        duration_ms = 0 if self._began_ms is None else now_ms - self._began_ms
        self._began_ms = None
        for tally in self._tallies:
            tally.complete(duration_ms=duration_ms, now_ms=wall_ms)
        return duration_ms

    def _give_up(self) -> None:
        """Count a rebalance that was overtaken by the next change."""
        if self._began_ms is not None:
            self._began_ms = None
            for tally in self._tallies:
                tally.failed += 1

    def moved(self, *, revoked: int, assigned: int) -> None:
        """Count partitions that changed hands."""
        for tally in self._tallies:
            tally.move(revoked=revoked, assigned=assigned)
