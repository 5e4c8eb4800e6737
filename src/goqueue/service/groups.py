"""Consumer groups: their members come, stay and go."""

import time
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.ids import MemberId, TopicName, TopicPartition
from goqueue.base.units import US_PER_MS
from goqueue.core.groups.member import JoinRequest, Member
from goqueue.core.groups.options import HEARTBEAT_INTERVAL_MS
from goqueue.core.groups.rebalance import by_topic, flat
from goqueue.core.groups.states import Phase
from goqueue.runtime.broker import Broker
from goqueue.runtime.groups.hosted_group import HostedGroup
from goqueue.service.gate import Gate
from goqueue.service.verb import caller_verb, verb
from goqueue.wire import calls, group_calls
from goqueue.wire.http.groups import RebalanceStats
from goqueue.wire.queue_calls import GroupCall
from goqueue.wire.times import format_time_us


class GroupOutline(NamedTuple):
    """What members are told of their group beside what is their own."""

    generation: int
    protocol: str
    members: list[str]


class Groups:
    """What can be asked about groups."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._gate = gate
        self._groups = broker.groups

    @caller_verb(Deed.JOIN_GROUP)
    async def join(self, caller: Caller, call: group_calls.JoinGroup) -> group_calls.Membership:
        """Let a member in, or back in; it may read all that it subscribes to."""
        for topic in call.topics:
            self._gate.admit(caller, Deed.FETCH, (topic,))
        request = JoinRequest(
            client_id=call.client_id,
            topics=tuple(call.topics),
            protocol=call.protocol,
            assignor=call.assignor,
            member_id=call.member_id,
            options=call.options,
        )
        connection = caller.connection
        hosted, member = await self._groups.join(call.group, request, connection=connection)
        return group_calls.Membership(
            member_id=member,
            leader_id=hosted.group.leader_id or member,
            protocol=hosted.group.protocol,
            assignor=hosted.group.assignor,
            assignment=self._assignment(hosted, member, hosted.group.phase_of(member)),
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            options=msgspec.to_builtins(hosted.options),
        )

    @caller_verb(Deed.HEARTBEAT)
    async def heartbeat(
        self, caller: Caller, call: group_calls.Heartbeat
    ) -> group_calls.MemberAssignment:
        """Note that a member is there; answer once its generation is durable."""
        started = time.perf_counter()
        hosted = self._groups.get(call.group)
        # A slow disk must not cost a member its place that came back in time.
        hosted.attach(call.member_id, caller.connection)
        await hosted.settled()
        phase = hosted.heartbeat(call.member_id, call.generation, connection=caller.connection)
        reply = self._assignment(hosted, MemberId(call.member_id), phase)
        hosted.observe_heartbeat(time.perf_counter() - started)
        return reply

    @verb(Deed.LEAVE_GROUP)
    async def leave(self, call: group_calls.LeaveGroup) -> calls.Nothing:
        """Let a member go."""
        await self._groups.leave(call.group, call.member_id)
        return calls.Nothing()

    @caller_verb(Deed.REVOKE_PARTITIONS)
    async def revoke(self, caller: Caller, call: group_calls.Revoked) -> group_calls.RevokedReply:
        """Take partitions a member has given up."""
        named = flat({TopicName(one.topic): one.partitions for one in call.partitions})
        hosted = await self._groups.revoke(
            call.group,
            call.member_id,
            generation=call.generation,
            revoked=sorted(named),
            connection=caller.connection,
        )
        pending = sum(map(len, hosted.group.pending.values()))
        return group_calls.RevokedReply(pending, hosted.group.phase.value)

    @verb(Deed.DESCRIBE_GROUP)
    async def describe(self, call: GroupCall) -> group_calls.GroupState:
        """Return all about a group."""
        hosted = self._groups.get(call.group)
        group = hosted.group
        return group_calls.GroupState(
            name=group.name,
            state=group.state.value,
            generation=group.generation,
            protocol=group.protocol,
            assignor=group.assignor,
            rebalance_state=group.phase.value,
            created_ms=group.created_ms,
            topics=list(self._broker.consume.topics_of(hosted)),
            options=msgspec.to_builtins(group.options),
            members=[_member(hosted, member) for member in group.members.values()],
        )

    @caller_verb(Deed.LIST_GROUPS)
    async def list_all(self, caller: Caller, _: calls.Nothing) -> group_calls.GroupList:
        """Return every group."""
        groups = [
            group_calls.GroupSummary(
                name=hosted.name,
                state=hosted.state.value,
                members=len(hosted.members),
                generation=hosted.generation,
                topics=list(self._broker.consume.topics_of(hosted)),
                mode=hosted.options.mode,
            )
            for hosted in self._gate.visible(
                caller, Deed.DESCRIBE_GROUP, self._groups, lambda one: str(one.name)
            )
        ]
        return group_calls.GroupList(groups)

    @verb(Deed.DELETE_GROUP)
    async def delete(self, call: group_calls.DeleteGroup) -> calls.Nothing:
        """End a group with everything known of it."""
        await self._groups.delete(call.group, is_forced=call.force)
        return calls.Nothing()

    @verb(Deed.JOIN_GROUP, Deed.HEARTBEAT, Deed.REVOKE_PARTITIONS)
    async def outline(self, group: str) -> GroupOutline:
        """Return what members are told of their group."""
        hosted = self._groups.get(group)
        return GroupOutline(hosted.generation, hosted.group.protocol, list(hosted.members))

    @verb(Deed.DESCRIBE_GROUP)
    async def assignment(self, group: str, member_id: str) -> group_calls.MemberAssignment:
        """Return what a member may read, without counting as a sign of life."""
        hosted, member = self._groups.get(group), MemberId(member_id)
        return self._assignment(hosted, member, hosted.group.phase_of(member))

    @verb(Deed.DESCRIBE_GROUP, Deed.LIST_GROUPS)
    async def rebalances(self, group: str | None = None) -> RebalanceStats:
        """Return how the rebalances of a group, or of all of them, went since the start."""
        tally = self._groups.tally if group is None else self._groups.get(group).tally
        last = msgspec.UNSET if tally.last_ms is None else format_time_us(tally.last_ms * US_PER_MS)
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
            last_rebalance_at=last,
        )

    def _assignment(
        self, hosted: HostedGroup, member_id: MemberId, phase: Phase
    ) -> group_calls.MemberAssignment:
        deadline_ms = hosted.sessions.deadline_ms(member_id)
        left_ms = None
        if deadline_ms is not None:
            left_ms = max(deadline_ms - self._broker.clock.monotonic_ms(), 0)
        return group_calls.MemberAssignment(
            generation=hosted.generation,
            state=phase.value,
            assignments=_parts(hosted.partitions_of(member_id)),
            to_revoke=_parts(hosted.group.to_revoke(member_id)),
            revoke_within_ms=left_ms,
        )


def _parts(partitions: Iterable[TopicPartition]) -> list[group_calls.TopicPartitions]:
    return [
        group_calls.TopicPartitions(topic, numbers)
        for topic, numbers in by_topic(partitions).items()
    ]


def _member(hosted: HostedGroup, member: Member) -> group_calls.GroupMember:
    return group_calls.GroupMember(
        id=member.id,
        client_id=member.client_id,
        topics=list(member.topics),
        assignments=_parts(hosted.partitions_of(member.id)),
        to_revoke=_parts(hosted.group.to_revoke(member.id)),
        joined_ms=member.joined_ms,
        heard_ms=hosted.heard_at_ms(member.id),
    )
