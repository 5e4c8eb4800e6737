"""Which tick of a schedule is next to be published, and how many were passed over.

Shape: calculator. Times are milliseconds since 1970. A tick counts as missed when a later one is
due as well, or when it is looked at too late; what becomes of missed ticks is the policy's matter.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from goqueue.base.limits import SCHEDULE_LATE_MS_MAX
from goqueue.base.limits import SCHEDULE_MISSED_PUBLISHED_MAX as PUBLISHED_MAX
from goqueue.core.recurring.spec import Missed


class Recent(NamedTuple):
    """The last ticks of a range, in order, and how many came before them in it."""

    ticks: Sequence[int]
    earlier: int


class Calendar(Protocol):
    """When a schedule ticks: a pure function of time."""

    def after(self, moment_ms: int) -> int | None:
        """Return the first tick after a moment, or None if there is none for a lifetime."""
        ...

    def recent(self, *, after_ms: int, until_ms: int, count_max: int) -> Recent:
        """Return the last ticks after one moment and up to another."""
        ...


class IntervalCalendar:
    """Ticks every so many milliseconds from a moment on."""

    def __init__(self, every_ms: int, *, anchor_ms: int) -> None:
        self._every_ms = every_ms
        self._anchor_ms = anchor_ms

    def after(self, moment_ms: int) -> int:
        """Return the first tick after a moment."""
        count = (moment_ms - self._anchor_ms) // self._every_ms
        return self._anchor_ms + max(count + 1, 1) * self._every_ms

    def recent(self, *, after_ms: int, until_ms: int, count_max: int) -> Recent:
        """Return the last ticks after one moment and up to another."""
        first = self.after(after_ms)
        count = max((until_ms - first) // self._every_ms + 1, 0)
        shown = min(count, count_max)
        start = first + (count - shown) * self._every_ms
        return Recent(range(start, start + shown * self._every_ms, self._every_ms), count - shown)


class Choice(NamedTuple):
    """The tick to publish, if any; everything up to ``until_ms`` beside it was missed."""

    tick_ms: int | None
    until_ms: int
    missed: int


def choose(
    calendar: Calendar, policy: Missed, *, after_ms: int, now_ms: int, is_all_allowed: bool = True
) -> Choice | None:
    """Return what to do about the ticks after one moment and up to now; None if there are none.

    ``is_all_allowed`` is False where the clock was set forward: the ticks it jumped over never
    came, so they are made up for once at most.
    """
    first = calendar.after(after_ms)
    if first is None or first > now_ms:
        return None
    if policy is Missed.ALL and not is_all_allowed:
        policy = Missed.ONE
    count_max = PUBLISHED_MAX if policy is Missed.ALL else 1
    ticks, earlier = calendar.recent(after_ms=after_ms, until_ms=now_ms, count_max=count_max)
    match policy:
        case Missed.ALL:
            return Choice(ticks[0], ticks[0], earlier)
        case Missed.ONE:
            return Choice(ticks[-1], ticks[-1], earlier)
        case Missed.SKIP:
            if now_ms - ticks[-1] <= SCHEDULE_LATE_MS_MAX:
                return Choice(ticks[-1], ticks[-1], earlier)
            return Choice(None, ticks[-1], earlier + 1)
