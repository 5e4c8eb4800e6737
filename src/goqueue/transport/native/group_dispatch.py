"""The native operations of consumer groups, each as one call on the broker."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from goqueue.base.ids import MemberId, TopicName, TopicPartition
from goqueue.core.groups.member import JoinRequest, Member
from goqueue.core.groups.options import HEARTBEAT_INTERVAL_MS
from goqueue.core.groups.rebalance import by_topic, flat
from goqueue.core.groups.states import Phase
from goqueue.runtime.broker import Broker
from goqueue.runtime.hosted_group import HostedGroup
from goqueue.transport.native.reply import Beside, Reply
from goqueue.wire import calls, group_calls
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import GroupCall


class GroupOperations:
    """Translates requests into calls on the broker's groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups = broker.groups

    def register(self, add: Callable[[Operation, type[calls.Call], Any], None]) -> None:
        """Add every operation to a dispatch."""
        add(Operation.JOIN_GROUP, group_calls.JoinGroup, self._join)
        add(Operation.HEARTBEAT, group_calls.Heartbeat, self._heartbeat)
        add(Operation.LEAVE_GROUP, group_calls.LeaveGroup, self._leave)
        add(Operation.REVOKED, group_calls.Revoked, self._revoked)
        add(Operation.DESCRIBE_GROUP, GroupCall, self._describe)
        add(Operation.LIST_GROUPS, calls.Nothing, self._list)
        add(Operation.DELETE_GROUP, group_calls.DeleteGroup, self._delete)

    async def _join(self, call: group_calls.JoinGroup, _: Beside) -> Reply:
        request = JoinRequest(
            client_id=call.client_id,
            topics=tuple(call.topics),
            protocol=call.protocol,
            assignor=call.assignor,
            member_id=call.member_id,
            options=call.options,
        )
        hosted, member = await self._groups.join(call.group, request)
        membership = group_calls.Membership(
            member_id=member,
            leader_id=hosted.group.leader_id or member,
            protocol=hosted.group.protocol,
            assignor=hosted.group.assignor,
            assignment=self._assignment(hosted, member, hosted.group.phase_of(member)),
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            options=msgspec.to_builtins(hosted.options),
        )
        return Reply(membership)

    async def _heartbeat(self, call: group_calls.Heartbeat, _: Beside) -> Reply:
        started = time.perf_counter()
        hosted = self._groups.get(call.group)
        await hosted.settled()
        phase = hosted.heartbeat(call.member_id, call.generation or None)
        reply = self._assignment(hosted, MemberId(call.member_id), phase)
        hosted.observe_heartbeat(time.perf_counter() - started)
        return Reply(reply)

    async def _leave(self, call: group_calls.LeaveGroup, _: Beside) -> Reply:
        await self._groups.leave(call.group, call.member_id)
        return Reply(calls.Nothing())

    async def _revoked(self, call: group_calls.Revoked, _: Beside) -> Reply:
        named = flat({TopicName(one.topic): one.partitions for one in call.partitions})
        hosted = await self._groups.revoke(
            call.group, call.member_id, generation=call.generation, revoked=sorted(named)
        )
        pending = sum(map(len, hosted.group.pending.values()))
        return Reply(group_calls.RevokedReply(pending, hosted.group.phase.value))

    async def _describe(self, call: GroupCall, _: Beside) -> Reply:
        hosted = self._groups.get(call.group)
        group = hosted.group
        state = group_calls.GroupState(
            name=group.name,
            state=group.state.value,
            generation=group.generation,
            protocol=group.protocol,
            assignor=group.assignor,
            rebalance_state=group.phase.value,
            created_ms=group.created_ms,
            topics=list(group.topics),
            options=msgspec.to_builtins(group.options),
            members=[_member(hosted, member) for member in group.members.values()],
        )
        return Reply(state)

    async def _list(self, _: calls.Nothing, __: Beside) -> Reply:
        groups = [
            group_calls.GroupSummary(
                name=hosted.name,
                state=hosted.state.value,
                members=len(hosted.members),
                generation=hosted.generation,
                topics=list(hosted.topics),
                mode=hosted.options.mode,
            )
            for hosted in self._groups
        ]
        return Reply(group_calls.GroupList(groups))

    async def _delete(self, call: group_calls.DeleteGroup, _: Beside) -> Reply:
        await self._groups.delete(call.group, is_forced=call.force)
        return Reply(calls.Nothing())

    def _assignment(
        self, hosted: HostedGroup, member_id: MemberId, phase: Phase
    ) -> group_calls.MemberAssignment:
        deadline_ms = hosted.group.deadline_ms(member_id)
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
