"""Cooperative rebalancing over HTTP: partitions move one by one, and nobody else pauses."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.units import format_duration_ms
from goqueue.service.service import Service
from goqueue.transport.http.call import Call
from goqueue.transport.http.group_views import (
    cooperative_detail_of,
    join_request,
    required_member,
    time_text,
)
from goqueue.transport.http.groups import TAG
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.group_calls import Heartbeat, LeaveGroup, Revoked, TopicPartitions
from goqueue.wire.http.groups import (
    AssignmentReply,
    CooperativeDetail,
    CooperativeHeartbeat,
    CooperativeJoined,
    GroupJoin,
    HeartbeatCall,
    Left,
    MemberCall,
    RebalanceStats,
    RevokeCall,
    RevokeReply,
    options_of,
    places_of,
)
from goqueue.wire.queue_calls import GroupCall

_JOIN: Final = msgspec.json.Decoder(GroupJoin)
_HEARTBEAT: Final = msgspec.json.Decoder(HeartbeatCall)
_MEMBER: Final = msgspec.json.Decoder(MemberCall)
_REVOKE: Final = msgspec.json.Decoder(RevokeCall)
_WHO: Final = Parameter(name="member_id", text="The member.", is_required=True)


class CooperativeRoutes:
    """Lets members in and out without stopping the others."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._groups = service.groups

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done in cooperation."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        large, conflict = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.CONFLICT
        one = "/groups/{group}"
        return (
            Operation(
                method="POST", path=f"{one}/heartbeat/cooperative", tag=TAG,
                answer=self.heartbeat_cooperative, body=HeartbeatCall, reply=CooperativeHeartbeat,
                deed=Deed.HEARTBEAT, errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="POST", path=f"{one}/join/cooperative", answer=self.join_cooperative,
                deed=Deed.JOIN_GROUP, tag=TAG, body=GroupJoin, reply=CooperativeJoined,
                errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="POST", path=f"{one}/leave/cooperative", answer=self.leave_cooperative,
                deed=Deed.LEAVE_GROUP,
                tag=TAG, body=MemberCall, reply=Left, errors=(bad, absent, large),
            ),
            Operation(
                method="POST", path=f"{one}/revoke", answer=self.acknowledge_revocation, tag=TAG,
                deed=Deed.REVOKE_PARTITIONS,
                body=RevokeCall, reply=RevokeReply, errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="GET", path=f"{one}/assignment", answer=self.show_assignment, tag=TAG,
                deed=Deed.DESCRIBE_GROUP,
                reply=AssignmentReply, parameters=(_WHO,), errors=(bad, absent),
            ),
            Operation(
                method="GET", path=f"{one}/cooperative", answer=self.show_cooperative, tag=TAG,
                deed=Deed.DESCRIBE_GROUP, reply=CooperativeDetail, errors=(absent,),
            ),
            Operation(
                method="GET", path=f"{one}/rebalance/stats", answer=self.show_rebalances, tag=TAG,
                deed=Deed.DESCRIBE_GROUP, reply=RebalanceStats, errors=(absent,),
            ),
            Operation(
                method="GET", path="/rebalance/stats", answer=self.show_all_rebalances, tag=TAG,
                deed=Deed.LIST_GROUPS, reply=RebalanceStats,
            ),
        )  # fmt: skip

    async def join_cooperative(self, call: Call) -> Response:
        """Come into a group, or come back, without stopping the others.

        What moves to the new member is first given up by its owner; heartbeats tell of both.
        """
        wanted = await call.body(_JOIN, bytes_max=self._service.config.http_body_bytes_max)
        request = join_request(call.path["group"], wanted, protocol="cooperative")
        member = await self._groups.join(call.grant, request)
        joined = CooperativeJoined(
            member_id=member.member_id,
            generation=member.assignment.generation,
            leader_id=member.leader_id,
            rebalance_required=True,
            protocol=member.protocol,
            members=(await self._groups.outline(call.grant, request.group)).members,
            state=member.assignment.state,
            assignments=places_of(member.assignment.assignments),
            heartbeat_interval=format_duration_ms(member.heartbeat_interval_ms),
            options=options_of(member.options),
        )
        return json_reply(joined)

    async def heartbeat_cooperative(self, call: Call) -> Response:
        """Say that a member is there, and hear what it may read and what it is to give up."""
        said = await call.body(_HEARTBEAT, bytes_max=self._service.config.http_body_bytes_max)
        group, member = call.path["group"], required_member(said.member_id)
        heard = await self._groups.heartbeat(call.grant, Heartbeat(group, member, said.generation))
        left_ms = heard.revoke_within_ms
        reply = CooperativeHeartbeat(
            rebalance_required=heard.state != "none",
            generation=heard.generation,
            protocol=(await self._groups.outline(call.grant, group)).protocol,
            state=heard.state,
            partitions_assigned=places_of(heard.assignments),
            partitions_to_revoke=places_of(heard.to_revoke),
            revocation_deadline=None
            if left_ms is None
            else time_text(self._service.now_ms() + left_ms),
        )
        return json_reply(reply)

    async def leave_cooperative(self, call: Call) -> Response:
        """Go; the same as leaving any other way."""
        said = await call.body(_MEMBER, bytes_max=self._service.config.http_body_bytes_max)
        leaving = LeaveGroup(call.path["group"], required_member(said.member_id))
        await self._groups.leave(call.grant, leaving)
        return json_reply(Left())

    async def acknowledge_revocation(self, call: Call) -> Response:
        """Give partitions up; those that are not named stay with the member until it does."""
        said = await call.body(_REVOKE, bytes_max=self._service.config.http_body_bytes_max)
        group = call.path["group"]
        named: dict[str, list[int]] = {}
        for one in said.revoked_partitions:
            named.setdefault(one.topic, []).append(one.partition)
        revoked = Revoked(
            group,
            required_member(said.member_id),
            said.generation,
            [TopicPartitions(topic, numbers) for topic, numbers in named.items()],
        )
        done = await self._groups.revoke(call.grant, revoked)
        reply = RevokeReply(
            pending_count=done.pending,
            # The one that gave up the last partition is told that all is in place.
            rebalance_state=done.state if done.pending else "complete",
            generation=(await self._groups.outline(call.grant, group)).generation,
        )
        return json_reply(reply)

    async def show_assignment(self, call: Call) -> Response:
        """Return what a member may read."""
        member_id = required_member(call.text("member_id"))
        found = await self._groups.assignment(call.grant, call.path["group"], member_id)
        reply = AssignmentReply(
            member_id=member_id,
            generation=found.generation,
            partitions=places_of(found.assignments),
        )
        return json_reply(reply)

    async def show_cooperative(self, call: Call) -> Response:
        """Return one group with its members, its options and its rebalances."""
        name = call.path["group"]
        group = await self._groups.describe(call.grant, GroupCall(name))
        rebalances = await self._groups.rebalances(call.grant, name)
        return json_reply(cooperative_detail_of(group, rebalances))

    async def show_rebalances(self, call: Call) -> Response:
        """Return how the rebalances of a group went since the broker started."""
        return json_reply(await self._groups.rebalances(call.grant, call.path["group"]))

    async def show_all_rebalances(self, call: Call) -> Response:
        """Return how all rebalances went since the broker started."""
        return json_reply(await self._groups.rebalances(call.grant))
