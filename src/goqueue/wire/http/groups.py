"""Consumer groups as JSON."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from goqueue.core.groups.options import GroupOptions
from goqueue.wire.group_calls import TopicPartitions

Generation = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of one topic."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class GroupJoin(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants in, and how the group is to consume.

    Options are those of the first join; later ones may state them again. Durations are text such
    as "30s". With ``member_id`` a member comes back as itself.
    """

    client_id: str | None = None
    topics: list[str] | None = None
    member_id: str | None = None
    protocol: str | None = None
    assignor: str | None = None
    assignment_strategy: str | None = None
    mode: str | None = None
    ordering: str | None = None
    visibility_timeout: str | None = None
    max_retries: int | None = None
    max_in_flight: int | None = None
    backoff: str | None = None
    backoff_max: str | None = None
    auto_commit: bool | None = None
    auto_commit_interval: str | None = None
    auto_offset_reset: str | None = None
    session_timeout: str | None = None
    revocation_timeout: str | None = None
    disconnect_grace: str | None = None


class GroupJoined(msgspec.Struct, frozen=True, kw_only=True):
    """The member, and what it may read; ``partitions`` are those of its first topic."""

    member_id: str
    generation: int
    leader_id: str
    partitions: list[int]
    assignments: list[Place]
    members: list[str]
    protocol: str
    assignor: str
    heartbeat_interval: str
    options: GroupOptions


class MemberCall(msgspec.Struct, frozen=True, kw_only=True):
    """A member that says something."""

    member_id: str


class HeartbeatCall(msgspec.Struct, frozen=True, kw_only=True):
    """A member that is there; without a generation none is compared."""

    member_id: str
    generation: Generation | None = None


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The member is known and up to date."""

    status: Literal["ok"] = "ok"


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """The member is gone."""

    status: Literal["left"] = "left"


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A group in a list."""

    id: str
    state: str
    members: int
    generation: int
    topics: list[str]
    mode: str


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """Every group."""

    groups: list[GroupSummary]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member; ``assigned_partitions`` are those of its first topic."""

    id: str
    client_id: str
    assigned_partitions: list[int]
    assignments: list[Place]
    topics: list[str]
    last_heartbeat: str
    joined_at: str


class GroupDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One group."""

    id: str
    state: str
    generation: int
    topics: list[str]
    members: list[GroupMember]
    created_at: str
    leader_id: str | None
    protocol: str
    assignor: str
    options: GroupOptions


class GroupDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """A group is gone, with everything known of it."""

    deleted: Literal[True] = True
    group: str


class CooperativeJoined(msgspec.Struct, frozen=True, kw_only=True):
    """The member, and what it may read so far; the rest comes by heartbeat."""

    member_id: str
    generation: int
    leader_id: str
    rebalance_required: bool
    protocol: str
    members: list[str]
    state: str
    assignments: list[Place]
    heartbeat_interval: str
    options: GroupOptions


class CooperativeHeartbeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a member has to know: all it may read, and what it is to finish and give up."""

    rebalance_required: bool
    generation: int
    protocol: str
    state: str
    partitions_assigned: list[Place] = []
    partitions_to_revoke: list[Place] = []
    revocation_deadline: str | None = None


class RevokeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A member that has given partitions up."""

    member_id: str
    generation: Generation
    revoked_partitions: Annotated[list[Place], msgspec.Meta(max_length=100_000)]


class RevokeReply(msgspec.Struct, frozen=True, kw_only=True):
    """How many partitions of the group are still to be given up."""

    status: Literal["acknowledged"] = "acknowledged"
    pending_count: int
    rebalance_state: str
    generation: int


class AssignmentReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a member may read."""

    member_id: str
    generation: int
    partitions: list[Place]


class RebalanceStats(msgspec.Struct, frozen=True, kw_only=True):
    """How rebalances went since the broker started; ``failed`` ones were overtaken by another."""

    total_rebalances: int
    successful_rebalances: int
    failed_rebalances: int
    total_partitions_revoked: int
    total_partitions_assigned: int
    total_revocation_timeouts: int
    last_rebalance_duration_ms: int
    average_rebalance_duration_ms: float
    rebalances_by_reason: dict[str, int]
    last_rebalance_at: str | msgspec.UnsetType = msgspec.UNSET


class CooperativeMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member, all its topics alike."""

    id: str
    client_id: str
    assigned_partitions: list[Place]
    partitions_to_revoke: list[Place]
    topics: list[str]
    last_heartbeat: str
    joined_at: str


class CooperativeDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One group and its rebalances."""

    id: str
    state: str
    generation: int
    protocol: str
    assignment_strategy: str
    rebalance_state: str
    topics: list[str]
    members: list[CooperativeMember]
    member_assignments: dict[str, list[Place]]
    rebalance_metrics: RebalanceStats
    created_at: str
    leader_id: str | None
    options: GroupOptions


def options_of(options: Mapping[str, str | int | bool]) -> GroupOptions:
    """Return the options of a group as they are shown."""
    return msgspec.convert(options, GroupOptions)


def places_of(parts: Iterable[TopicPartitions]) -> list[Place]:
    """Return partitions by topic and number."""
    pairs = sorted((part.topic, number) for part in parts for number in part.partitions)
    return [Place(topic=topic, partition=number) for topic, number in pairs]
