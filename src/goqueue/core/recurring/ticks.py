"""Which tick of a schedule is next to be published, and how many were passed over.

Shape: calculator. Times are milliseconds since 1970. A tick counts as missed when a later one is
due as well, or when it is looked at too late; what becomes of missed ticks is the policy's matter.
"""

from collections import deque
from collections.abc import Generator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from goqueue.base.limits import SCHEDULE_LATE_MS_MAX
from goqueue.base.limits import SCHEDULE_MISSED_PUBLISHED_MAX as PUBLISHED_MAX
from goqueue.core.recurring.spec import Missed

T = TypeVar("T")
Counting = Generator[None, None, T]
"""Work that may take long: it yields now and then, for other work to go between."""


class Recent(NamedTuple):
    """The last ticks of a range, in order, and how many came before them in it."""

    ticks: Sequence[int]
    earlier: int


class Calendar(Protocol):
    """When a schedule ticks: a pure function of time."""

    def after(self, moment_ms: int) -> int | None:
        """Return the first tick after a moment, or None if there is none for a lifetime."""
        ...

    def recent(self, *, after_ms: int, until_ms: int, count_max: int) -> Counting[Recent]:
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

    def recent(self, *, after_ms: int, until_ms: int, count_max: int) -> Counting[Recent]:
        """Return the last ticks after one moment and up to another."""
        yield from ()
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


class Chooser:
    """Chooses one tick after the other, and keeps those that it has worked out for the next."""

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self._held: deque[int] = deque()
        self._held_after_ms = 0
        self._earlier = 0

    def __repr__(self) -> str:
        return f"<Chooser with {len(self._held)} ticks>"

    def choose(
        self, policy: Missed, *, after_ms: int, now_ms: int, jumped_ms: int | None = None
    ) -> Counting[Choice | None]:
        """Return what to do about the ticks after a moment and up to now; None if there are none.

        Up to ``jumped_ms`` the clock was set forward: the ticks it jumped over never came, so they
        are made up for once at most.
        """
        if policy is not Missed.ALL:
            return (yield from self._choose_last(policy, after_ms, now_ms))
        if jumped_ms is not None and after_ms < jumped_ms:
            self._held.clear()
            until_ms = min(jumped_ms, now_ms)
            choice = yield from self._choose_last(Missed.ONE, after_ms, until_ms)
            if choice is not None:
                return choice
        return (yield from self._choose_first(after_ms, now_ms))

    def forget(self) -> None:
        """Keep nothing that was worked out: it takes memory."""
        self._held.clear()

    def _choose_first(self, after_ms: int, now_ms: int) -> Counting[Choice | None]:
        held = self._held
        if held and held[0] == after_ms:
            self._held_after_ms, self._earlier = held.popleft(), 0
        if not held or self._held_after_ms != after_ms or held[0] > now_ms:
            held.clear()
            ticks, self._earlier = yield from self._recent(after_ms, now_ms, PUBLISHED_MAX)
            held.extend(ticks)
            self._held_after_ms = after_ms
        return Choice(held[0], held[0], self._earlier) if held else None

    def _choose_last(self, policy: Missed, after_ms: int, now_ms: int) -> Counting[Choice | None]:
        ticks, earlier = yield from self._recent(after_ms, now_ms, 1)
        if not ticks:
            return None
        if policy is Missed.SKIP and now_ms - ticks[-1] > SCHEDULE_LATE_MS_MAX:
            return Choice(None, ticks[-1], earlier + 1)
        return Choice(ticks[-1], ticks[-1], earlier)

    def _recent(self, after_ms: int, until_ms: int, count_max: int) -> Counting[Recent]:
        first = self._calendar.after(after_ms)
        if first is None or first > until_ms:
            return Recent((), 0)
        second = self._calendar.after(first)
        if second is None or second > until_ms:
            # As a rule one tick is due: nothing is counted for it.
            return Recent((first,), 0)
        return (
            yield from self._calendar.recent(
                after_ms=after_ms, until_ms=until_ms, count_max=count_max
            )
        )
