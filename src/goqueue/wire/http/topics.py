"""Topics as JSON."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from goqueue.core.topics.settings import SETTING_NAMES, TopicSettings

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
SettingsText = Annotated[
    dict[str, Any],
    msgspec.Meta(
        description=f"Settings by name: {', '.join(SETTING_NAMES)}. Durations and sizes are numbers"
        ' (milliseconds, bytes) or text such as "7d" and "64MiB".',
        examples=[{"retention_ms": "7d", "durability": "fsync"}],
    ),
]


class TopicCreate(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to be made. A number of zero or less stands for its default."""

    name: str
    num_partitions: Int64 | None = None
    retention_hours: Int64 | None = None
    config: SettingsText | None = None


class TopicCreated(msgspec.Struct, frozen=True, kw_only=True):
    """A topic was made."""

    name: str
    partitions: int
    created: Literal[True] = True


class TopicDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """A topic is gone, with all its messages."""

    deleted: Literal[True] = True
    name: str


class TopicList(msgspec.Struct, frozen=True, kw_only=True):
    """Every topic."""

    topics: list[str]


class OffsetRange(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the last offset there is; ``latest`` lies before ``earliest`` when empty."""

    earliest: int
    latest: int


class TopicDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One topic: how large it is and how it is kept."""

    name: str
    partitions: int
    total_messages: int
    total_size_bytes: int
    partition_offsets: dict[str, OffsetRange]
    config: TopicSettings


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a topic is kept."""

    name: str
    config: TopicSettings


class PartitionPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes hold a partition."""

    partition: int
    leader: str
    replicas: list[str]
    isr: list[str]
    version: int


class PartitionList(msgspec.Struct, frozen=True, kw_only=True):
    """Where the partitions of a topic are."""

    topic: str
    partitions: list[PartitionPlace]


class PartitionsAdd(msgspec.Struct, frozen=True, kw_only=True):
    """The new total of partitions; in a cluster, if wanted, the nodes of each new one."""

    count: Int64
    replica_assignments: dict[str, list[str]] | None = None


class PartitionsAdded(msgspec.Struct, frozen=True, kw_only=True):
    """A topic has more partitions."""

    success: Literal[True] = True
    topic_name: str
    old_partition_count: int
    new_partition_count: int
    partitions_added: list[int]


class ScalingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether partitions are being added to a topic."""

    topic: str
    scaling_in_progress: bool


class TopicCompact(msgspec.Struct, frozen=True, kw_only=True):
    """What to compact: all partitions unless some are named. A dry run changes nothing."""

    partitions: list[Int64] | None = None
    dry_run: bool | None = None


class PartitionCompacted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one partition; ``dirty_ratio`` is what it was before."""

    partition: int
    records_before: int
    records_after: int
    records_removed: int
    dirty_ratio: float
    error: str | None = None


class TopicCompacted(msgspec.Struct, frozen=True, kw_only=True):
    """What compaction did; not a success if any partition has an error."""

    success: bool
    topic: str
    dry_run: bool
    results: list[PartitionCompacted]


class OffsetList(msgspec.Struct, frozen=True, kw_only=True):
    """For each partition where to begin reading."""

    topic: str
    timestamp: str
    offsets: dict[str, int]


def settings_of(settings: Mapping[str, str | int | float]) -> TopicSettings:
    """Return settings as they are shown."""
    return msgspec.convert(settings, TopicSettings)
