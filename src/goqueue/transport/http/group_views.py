"""Groups as the HTTP API shows them, and joins as it reads them."""

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import US_PER_MS
from goqueue.wire.group_calls import GroupMember as MemberState
from goqueue.wire.group_calls import GroupState, JoinGroup
from goqueue.wire.http.groups import (
    CooperativeDetail,
    CooperativeMember,
    GroupDetail,
    GroupJoin,
    GroupMember,
    RebalanceStats,
    options_of,
    places_of,
)
from goqueue.wire.times import format_time_us

_NO_OPTIONS = {"client_id", "topics", "member_id", "protocol", "assignor", "assignment_strategy"}


def join_request(group: str, wanted: GroupJoin, *, protocol: str) -> JoinGroup:
    """Return what a body asks for; a protocol of its own goes before that of the route."""
    if not wanted.client_id:
        raise InvalidRequestError("client_id is required")
    if not wanted.topics:
        raise InvalidRequestError("at least one topic is required")
    fields = msgspec.structs.asdict(wanted)
    options = {name: one for name, one in fields.items() if name not in _NO_OPTIONS}
    return JoinGroup(
        group,
        wanted.client_id,
        wanted.topics,
        protocol=wanted.protocol or protocol,
        assignor=wanted.assignor or wanted.assignment_strategy,
        member_id=wanted.member_id or None,
        options={name: one for name, one in options.items() if one is not None},
    )


def detail_of(group: GroupState) -> GroupDetail:
    """Return all about a group."""
    return GroupDetail(
        id=group.name,
        state=group.state,
        generation=group.generation,
        topics=group.topics,
        members=[_member(member) for member in group.members],
        created_at=time_text(group.created_ms),
        leader_id=_leader_of(group),
        protocol=group.protocol,
        assignor=group.assignor,
        options=options_of(group.options),
    )


def _leader_of(group: GroupState) -> str | None:
    return group.members[0].id if group.members else None


def _member(member: MemberState) -> GroupMember:
    # Clients of one topic know its partitions by their numbers.
    first = [one.partitions for one in member.assignments if one.topic == member.topics[0]]
    return GroupMember(
        id=member.id,
        client_id=member.client_id,
        assigned_partitions=[number for numbers in first for number in numbers],
        assignments=places_of([*member.assignments, *member.to_revoke]),
        topics=member.topics,
        last_heartbeat=time_text(member.heard_ms),
        joined_at=time_text(member.joined_ms),
    )


def cooperative_detail_of(group: GroupState, rebalances: RebalanceStats) -> CooperativeDetail:
    """Return all about a group, and about its rebalances."""
    members = [_cooperative_member(member) for member in group.members]
    return CooperativeDetail(
        id=group.name,
        state=group.state,
        generation=group.generation,
        protocol=group.protocol,
        assignment_strategy=group.assignor,
        rebalance_state=group.rebalance_state,
        topics=group.topics,
        members=members,
        member_assignments={one.id: one.assigned_partitions for one in members},
        rebalance_metrics=rebalances,
        created_at=time_text(group.created_ms),
        leader_id=_leader_of(group),
        options=options_of(group.options),
    )


def _cooperative_member(member: MemberState) -> CooperativeMember:
    return CooperativeMember(
        id=member.id,
        client_id=member.client_id,
        assigned_partitions=places_of([*member.assignments, *member.to_revoke]),
        partitions_to_revoke=places_of(member.to_revoke),
        topics=member.topics,
        last_heartbeat=time_text(member.heard_ms),
        joined_at=time_text(member.joined_ms),
    )


def time_text(moment_ms: int) -> str:
    """Write a time in milliseconds as people read it."""
    return format_time_us(moment_ms * US_PER_MS)


def required_member(member_id: str | None) -> str:
    """Return the member of a name, or raise."""
    if not member_id:
        raise InvalidRequestError("member_id is required")
    return member_id
