"""What a broker does at a glance: counters that only grow, and how things stand."""

import msgspec

from goqueue.wire.calls import Call


class TopicView(Call, frozen=True):
    """One topic.

    ``messages_in`` counts what was published, ``messages_out`` what was read or acked since the
    broker started. ``lanes`` are messages some group has not settled, most urgent first; all
    there are where no group reads the topic. ``dead`` are the dead letters that lie in its DLQ.
    """

    name: str
    partitions: int
    size_bytes: int
    messages_in: int
    messages_out: int
    lanes: list[int]
    delayed: int
    dead: int


class GroupView(Call, frozen=True):
    """One group. ``acked`` counts since the group began; the rest is how it stands."""

    name: str
    state: str
    members: int
    topics: list[str]
    acked: int
    lag: int
    lag_ms: int
    in_flight: int
    waiting: int
    dead: int


class Overview(Call, frozen=True):
    """The broker. ``at_ms`` is a time of its monotonic clock, for rates."""

    node_id: str
    at_ms: int
    uptime_ms: int
    topics: list[TopicView] = msgspec.field(default_factory=list)
    groups: list[GroupView] = msgspec.field(default_factory=list)
