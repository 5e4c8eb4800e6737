"""The headers of what is asked of consumer groups: joining, staying, leaving, looking."""

from typing import Annotated

import msgspec

from goqueue.base.limits import GROUP_TOPICS_MAX
from goqueue.wire.calls import Call, Name, Number, Text
from goqueue.wire.queue_calls import Member

Topics = Annotated[list[Name], msgspec.Meta(max_length=GROUP_TOPICS_MAX)]


class TopicPartitions(Call, frozen=True):
    """Some partitions of one topic."""

    topic: Name
    partitions: list[Number]


Assigned = Annotated[list[TopicPartitions], msgspec.Meta(max_length=GROUP_TOPICS_MAX)]


class JoinGroup(Call, frozen=True):
    """Come into a group, or (with a member id) come back; None leaves a choice to the group."""

    group: Text
    client_id: Text
    topics: Topics
    protocol: Text | None = None
    assignor: Text | None = None
    member_id: Member | None = None
    options: dict[Name, str | int | bool] = msgspec.field(default_factory=dict)


class Heartbeat(Call, frozen=True):
    """Say that a member is there; without a generation none is compared."""

    group: Text
    member_id: Member
    generation: Number | None = None


class MemberAssignment(Call, frozen=True):
    """What a member has to know: what it may read, and what it is to finish and give up.

    ``state`` is ``pending_revoke`` while it has something to give up, ``pending_assign`` while it
    waits for others, ``complete`` when it has not heard of this generation, else ``none``.
    """

    generation: int
    state: str
    assignments: list[TopicPartitions]
    to_revoke: list[TopicPartitions]
    revoke_within_ms: int | None = None


class Membership(Call, frozen=True):
    """A member, as the group took it."""

    member_id: str
    leader_id: str
    protocol: str
    assignor: str
    assignment: MemberAssignment
    heartbeat_interval_ms: int
    options: dict[str, str | int | bool]


class LeaveGroup(Call, frozen=True):
    """Go."""

    group: Text
    member_id: Member


class Revoked(Call, frozen=True):
    """Give partitions up."""

    group: Text
    member_id: Member
    generation: Number
    partitions: Assigned


class RevokedReply(Call, frozen=True):
    """How many partitions of the group are still to be given up."""

    pending: int
    state: str


class DeleteGroup(Call, frozen=True):
    """End a group; one that has members only by force."""

    group: Text
    force: bool = False


class GroupSummary(Call, frozen=True):
    """A group in a list."""

    name: str
    state: str
    members: int
    generation: int
    topics: list[str]
    mode: str


class GroupList(Call, frozen=True):
    """Every group."""

    groups: list[GroupSummary]


class GroupMember(Call, frozen=True):
    """One member. Times are milliseconds since 1970."""

    id: str
    client_id: str
    topics: list[str]
    assignments: list[TopicPartitions]
    to_revoke: list[TopicPartitions]
    joined_ms: int
    heard_ms: int


class GroupState(Call, frozen=True):
    """All about one group; the first member is its leader."""

    name: str
    state: str
    generation: int
    protocol: str
    assignor: str
    rebalance_state: str
    created_ms: int
    topics: list[str]
    options: dict[str, str | int | bool]
    members: list[GroupMember]
