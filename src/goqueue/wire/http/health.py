"""What the broker says of its own health."""

from typing import Literal

import msgspec

CheckStatus = Literal["pass", "warn", "fail"]


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """Something answers here."""

    status: Literal["ok"] = "ok"
    timestamp: str


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at, and how long that took."""

    status: CheckStatus
    message: str
    latency: str


class BrokerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Which broker this is and what it holds."""

    node_id: str
    topic_count: int
    total_size: int


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the broker works. ``checks`` and ``broker`` come with ``verbose=true``."""

    status: CheckStatus
    timestamp: str
    uptime: str
    message: str | None = None
    checks: dict[str, Check] | None = None
    broker: BrokerSummary | None = None


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """What runs here."""

    version: str
    git_commit: str
    build_time: str
    python_version: str


class TopicStats(msgspec.Struct, frozen=True, kw_only=True):
    """The size of one topic."""

    name: str = msgspec.field(name="Name")
    partitions: int = msgspec.field(name="Partitions")
    total_messages: int = msgspec.field(name="TotalMessages")
    total_size: int = msgspec.field(name="TotalSize")


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The size of everything."""

    node_id: str
    uptime: str
    topics: int
    total_size_bytes: int
    topic_stats: dict[str, TopicStats]
