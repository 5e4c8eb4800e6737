"""What there is to see of the demonstration at one moment, and its changes between two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from examples.demo import topics
from examples.demo.billing import GROUP
from examples.demo.books import Totals
from goqueue import Overview
from goqueue.spark.pipelines.state import QueryState

MILLISECONDS: Final = 1_000


class Phase(StrEnum):
    """How far the demonstration is."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    CHECKING = "checking"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSight:
    """The consumer group."""

    members: int = 0
    acked: int = 0
    acked_per_second: float = 0.0
    lag: int = 0
    in_flight: int = 0
    waiting: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleFrames:
    """All of it."""

    phase: Phase
    seconds: float
    """Since it began."""
    seconds_left: float | None
    published: int = 0
    published_per_second: float = 0.0
    kinds: Mapping[str, int] = field(default_factory=dict)
    group: GroupSight = field(default_factory=GroupSight)
    spark: str = ""
    queries: Mapping[str, QueryState] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    totals: Sequence[tuple[str, int, int]] = ()
    """By category: orders and what they are worth in cents, the most first."""
    windows: int = 0
    rates: Sequence[float] = ()
    """Orders published a second, over the last looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Rates between two looks at the broker."""

    published: float = 0.0
    acked: float = 0.0


def pace(before: Overview, now: Overview) -> Pace:
    """Return how fast things moved between two looks."""
    seconds = max(now.at_ms - before.at_ms, 1) / MILLISECONDS
    return Pace(
        published=max(_published(now) - _published(before), 0) / seconds,
        acked=max(_acked(now) - _acked(before), 0) / seconds,
    )


def group_sight(overview: Overview, moved: Pace) -> GroupSight:
    """Return how the group stands."""
    for group in overview.groups:
        if group.name == GROUP:
            return GroupSight(
                members=group.members,
                acked=group.acked,
                acked_per_second=moved.acked,
                lag=group.lag,
                in_flight=group.in_flight,
                waiting=group.waiting,
                dead=group.dead,
            )
    return GroupSight()


def by_category(totals: Totals) -> list[tuple[str, int, int]]:
    """Return orders and their worth by category, the most valuable first."""
    sums: dict[str, tuple[int, int]] = {}
    for (_, category), (orders, cents) in totals.windows.items():
        known_orders, known_cents = sums.get(category, (0, 0))
        sums[category] = (known_orders + orders, known_cents + cents)
    rows = [(category, orders, cents) for category, (orders, cents) in sums.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0]))


def _published(overview: Overview) -> int:
    return sum(one.messages_in for one in overview.topics if one.name == topics.ORDERS)


def _acked(overview: Overview) -> int:
    return sum(one.acked for one in overview.groups if one.name == GROUP)
