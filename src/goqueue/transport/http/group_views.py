"""Groups as the HTTP API shows them, and joins as it reads them."""

from collections.abc import Iterable

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import MemberId, TopicPartition
from goqueue.base.units import US_PER_MS
from goqueue.core.groups.member import JoinRequest, Member
from goqueue.core.groups.tally import Tally
from goqueue.runtime.hosted_group import HostedGroup
from goqueue.wire.http.groups import (
    CooperativeDetail,
    CooperativeMember,
    GroupDetail,
    GroupJoin,
    GroupMember,
    Place,
    RebalanceStats,
)
from goqueue.wire.times import format_time_us

_NO_OPTIONS = {"client_id", "topics", "member_id", "protocol", "assignor", "assignment_strategy"}


def join_request(wanted: GroupJoin, *, protocol: str) -> JoinRequest:
    """Return what a body asks for; a protocol of its own goes before that of the route."""
    if not wanted.client_id:
        raise InvalidRequestError("client_id is required")
    if not wanted.topics:
        raise InvalidRequestError("at least one topic is required")
    fields = msgspec.structs.asdict(wanted)
    return JoinRequest(
        client_id=wanted.client_id,
        topics=tuple(wanted.topics),
        protocol=wanted.protocol or protocol,
        assignor=wanted.assignor or wanted.assignment_strategy,
        member_id=wanted.member_id or None,
        options={name: one for name, one in fields.items() if name not in _NO_OPTIONS},
    )


def places(partitions: Iterable[TopicPartition]) -> list[Place]:
    """Return partitions by topic and number."""
    return [Place(topic=one.topic, partition=one.partition) for one in sorted(partitions)]


def first_topic_of(hosted: HostedGroup, member: Member) -> list[int]:
    """Return the partitions of a member's first topic, as clients of one topic know them."""
    open_to = hosted.partitions_of(member.id)
    return [one.partition for one in open_to if one.topic == member.topics[0]]


def detail_of(hosted: HostedGroup) -> GroupDetail:
    """Return all about a group."""
    group = hosted.group
    return GroupDetail(
        id=group.name,
        state=group.state.value,
        generation=group.generation,
        topics=list(group.topics),
        members=[_member(hosted, member) for member in group.members.values()],
        created_at=time_text(group.created_ms),
        leader_id=group.leader_id,
        protocol=group.protocol,
        assignor=group.assignor,
        options=group.options,
    )


def _member(hosted: HostedGroup, member: Member) -> GroupMember:
    return GroupMember(
        id=member.id,
        client_id=member.client_id,
        assigned_partitions=first_topic_of(hosted, member),
        assignments=places(hosted.group.owned_by(member.id)),
        topics=list(member.topics),
        last_heartbeat=time_text(hosted.heard_at_ms(member.id)),
        joined_at=time_text(member.joined_ms),
    )


def cooperative_detail_of(hosted: HostedGroup) -> CooperativeDetail:
    """Return all about a group, and about its rebalances."""
    group = hosted.group
    return CooperativeDetail(
        id=group.name,
        state=group.state.value,
        generation=group.generation,
        protocol=group.protocol,
        assignment_strategy=group.assignor,
        rebalance_state=group.phase.value,
        topics=list(group.topics),
        members=[_cooperative_member(hosted, member) for member in group.members.values()],
        member_assignments={one: places(group.owned_by(one)) for one in group.members},
        rebalance_metrics=stats_of(hosted.tally),
        created_at=time_text(group.created_ms),
        leader_id=group.leader_id,
        options=group.options,
    )


def _cooperative_member(hosted: HostedGroup, member: Member) -> CooperativeMember:
    return CooperativeMember(
        id=member.id,
        client_id=member.client_id,
        assigned_partitions=places(hosted.group.owned_by(member.id)),
        partitions_to_revoke=places(hosted.group.to_revoke(member.id)),
        topics=list(member.topics),
        last_heartbeat=time_text(hosted.heard_at_ms(member.id)),
        joined_at=time_text(member.joined_ms),
    )


def stats_of(tally: Tally) -> RebalanceStats:
    """Return how rebalances went."""
    return RebalanceStats(
        total_rebalances=tally.total,
        successful_rebalances=tally.successful,
        failed_rebalances=tally.failed,
        total_partitions_revoked=tally.revoked,
        total_partitions_assigned=tally.assigned,
        total_revocation_timeouts=tally.timeouts,
        last_rebalance_duration_ms=tally.last_duration_ms,
        average_rebalance_duration_ms=round(tally.average_duration_ms, 3),
        rebalances_by_reason=dict(tally.by_reason),
        last_rebalance_at=msgspec.UNSET if tally.last_ms is None else time_text(tally.last_ms),
    )


def time_text(moment_ms: int) -> str:
    """Write a time in milliseconds as people read it."""
    return format_time_us(moment_ms * US_PER_MS)


def required_member(member_id: str | None) -> MemberId:
    """Return the member somebody names, or raise."""
    if not member_id:
        raise InvalidRequestError("member_id is required")
    return MemberId(member_id)
