"""From two looks at a broker to rates."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from goqueue.base.units import SECOND_MS

if TYPE_CHECKING:
    from goqueue.wire.overview_calls import GroupView, Overview, TopicView

LANES: Final = ("critical", "high", "normal", "low", "background")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSight:
    """One topic between two looks. Rates are messages a second."""

    name: str
    partitions: int
    size_bytes: int
    rate_in: float
    rate_out: float
    pending: dict[str, int]
    delayed: int
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSight:
    """One group between two looks."""

    name: str
    state: str
    members: int
    topics: list[str]
    rate_acked: float
    lag: int
    lag_seconds: float
    in_flight: int
    waiting: int
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """Everything there is to see; the busiest first."""

    node_id: str
    uptime_ms: int
    rate_in: float
    rate_out: float
    topics: list[TopicSight]
    groups: list[GroupSight]


def sight_of(before: "Overview", now: "Overview") -> TopView:
    """Return how things stand and how fast they moved since."""
    seconds = max(now.at_ms - before.at_ms, 1) / SECOND_MS
    topics_before = {one.name: one for one in before.topics}
    groups_before = {one.name: one for one in before.groups}
    topics = [_topic(one, topics_before.get(one.name, one), seconds) for one in now.topics]
    groups = [_group(one, groups_before.get(one.name, one), seconds) for one in now.groups]
    return TopView(
        node_id=now.node_id,
        uptime_ms=now.uptime_ms,
        rate_in=round(sum(one.rate_in for one in topics), 1),
        rate_out=round(sum(one.rate_out for one in topics), 1),
        topics=sorted(topics, key=lambda one: (-(one.rate_in + one.rate_out), one.name)),
        groups=sorted(groups, key=lambda one: (-one.lag, one.name)),
    )


def tell(sight: TopView) -> dict[str, object]:
    """Return it as plain values."""
    return asdict(sight)


def _rate(before: int, now: int, seconds: float) -> float:
    # A restart or a reset counts anew: that is no negative rate.
    return round(max(now - before, 0) / seconds, 1)


def _topic(now: "TopicView", before: "TopicView", seconds: float) -> TopicSight:
    return TopicSight(
        name=now.name,
        partitions=now.partitions,
        size_bytes=now.size_bytes,
        rate_in=_rate(before.messages_in, now.messages_in, seconds),
        rate_out=_rate(before.messages_out, now.messages_out, seconds),
        pending=dict(zip(LANES, now.lanes, strict=True)),
        delayed=now.delayed,
        dead=now.dead,
    )


def _group(now: "GroupView", before: "GroupView", seconds: float) -> GroupSight:
    return GroupSight(
        name=now.name,
        state=now.state,
        members=now.members,
        topics=list(now.topics),
        rate_acked=_rate(before.acked, now.acked, seconds),
        lag=now.lag,
        lag_seconds=now.lag_ms / SECOND_MS,
        in_flight=now.in_flight,
        waiting=now.waiting,
        dead=now.dead,
    )
