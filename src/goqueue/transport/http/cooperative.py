"""Cooperative rebalancing over HTTP: partitions move one by one, and nobody else pauses."""

import time
from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.base.units import format_duration_ms
from goqueue.core.groups.options import HEARTBEAT_INTERVAL_MS
from goqueue.core.groups.rebalance import COOPERATIVE
from goqueue.core.groups.states import Phase
from goqueue.runtime.broker import Broker
from goqueue.transport.http.call import Call
from goqueue.transport.http.group_views import (
    cooperative_detail_of,
    join_request,
    places,
    required_member,
    stats_of,
    time_text,
)
from goqueue.transport.http.groups import TAG
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
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
)

_JOIN: Final = msgspec.json.Decoder(GroupJoin)
_HEARTBEAT: Final = msgspec.json.Decoder(HeartbeatCall)
_MEMBER: Final = msgspec.json.Decoder(MemberCall)
_REVOKE: Final = msgspec.json.Decoder(RevokeCall)
_WHO: Final = Parameter(name="member_id", text="The member.", is_required=True)


class CooperativeRoutes:
    """Lets members in and out without stopping the others."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups = broker.groups

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done in cooperation."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        large, conflict = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.CONFLICT
        one = "/groups/{group}"
        return (
            Operation(
                method="POST", path=f"{one}/heartbeat/cooperative", tag=TAG,
                answer=self.heartbeat_cooperative, body=HeartbeatCall, reply=CooperativeHeartbeat,
                errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="POST", path=f"{one}/join/cooperative", answer=self.join_cooperative,
                tag=TAG, body=GroupJoin, reply=CooperativeJoined,
                errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="POST", path=f"{one}/leave/cooperative", answer=self.leave_cooperative,
                tag=TAG, body=MemberCall, reply=Left, errors=(bad, absent, large),
            ),
            Operation(
                method="POST", path=f"{one}/revoke", answer=self.acknowledge_revocation, tag=TAG,
                body=RevokeCall, reply=RevokeReply, errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="GET", path=f"{one}/assignment", answer=self.show_assignment, tag=TAG,
                reply=AssignmentReply, parameters=(_WHO,), errors=(bad, absent),
            ),
            Operation(
                method="GET", path=f"{one}/cooperative", answer=self.show_cooperative, tag=TAG,
                reply=CooperativeDetail, errors=(absent,),
            ),
            Operation(
                method="GET", path=f"{one}/rebalance/stats", answer=self.show_rebalances, tag=TAG,
                reply=RebalanceStats, errors=(absent,),
            ),
            Operation(
                method="GET", path="/rebalance/stats", answer=self.show_all_rebalances, tag=TAG,
                reply=RebalanceStats,
            ),
        )  # fmt: skip

    async def join_cooperative(self, call: Call) -> Response:
        """Come into a group, or come back, without stopping the others.

        What moves to the new member is first given up by its owner; heartbeats tell of both.
        """
        wanted = await call.body(_JOIN, bytes_max=self._broker.config.http_body_bytes_max)
        request = join_request(wanted, protocol=COOPERATIVE)
        hosted, member_id = await self._groups.join(call.path["group"], request)
        joined = CooperativeJoined(
            member_id=member_id,
            generation=hosted.generation,
            leader_id=hosted.group.leader_id or member_id,
            rebalance_required=True,
            protocol=hosted.group.protocol,
            members=list(hosted.members),
            state=hosted.group.phase_of(member_id).value,
            assignments=places(hosted.partitions_of(member_id)),
            heartbeat_interval=format_duration_ms(HEARTBEAT_INTERVAL_MS),
            options=hosted.options,
        )
        return json_reply(joined)

    async def heartbeat_cooperative(self, call: Call) -> Response:
        """Say that a member is there, and hear what it may read and what it is to give up."""
        started = time.perf_counter()
        said = await call.body(_HEARTBEAT, bytes_max=self._broker.config.http_body_bytes_max)
        hosted = self._groups.get(call.path["group"])
        member_id = required_member(said.member_id)
        await hosted.settled()
        phase = hosted.heartbeat(member_id, said.generation)
        deadline_ms = hosted.deadline_at_ms(member_id)
        reply = CooperativeHeartbeat(
            rebalance_required=phase is not Phase.NONE,
            generation=hosted.generation,
            protocol=hosted.group.protocol,
            state=phase.value,
            partitions_assigned=places(hosted.partitions_of(member_id)),
            partitions_to_revoke=places(hosted.group.to_revoke(member_id)),
            revocation_deadline=None if deadline_ms is None else time_text(deadline_ms),
        )
        hosted.observe_heartbeat(time.perf_counter() - started)
        return json_reply(reply)

    async def leave_cooperative(self, call: Call) -> Response:
        """Go; the same as leaving any other way."""
        said = await call.body(_MEMBER, bytes_max=self._broker.config.http_body_bytes_max)
        await self._groups.leave(call.path["group"], required_member(said.member_id))
        return json_reply(Left())

    async def acknowledge_revocation(self, call: Call) -> Response:
        """Give partitions up; those that are not named stay with the member until it does."""
        said = await call.body(_REVOKE, bytes_max=self._broker.config.http_body_bytes_max)
        named = [
            TopicPartition(TopicName(one.topic), PartitionId(one.partition))
            for one in said.revoked_partitions
        ]
        hosted = await self._groups.revoke(
            call.path["group"],
            required_member(said.member_id),
            generation=said.generation,
            revoked=named,
        )
        pending = sum(map(len, hosted.group.pending.values()))
        # The one that gave up the last partition is told that all is in place.
        phase = hosted.group.phase if pending else Phase.COMPLETE
        reply = RevokeReply(
            pending_count=pending, rebalance_state=phase.value, generation=hosted.generation
        )
        return json_reply(reply)

    async def show_assignment(self, call: Call) -> Response:
        """Return what a member may read."""
        member_id = required_member(call.text("member_id"))
        hosted = self._groups.get(call.path["group"])
        reply = AssignmentReply(
            member_id=member_id,
            generation=hosted.generation,
            partitions=places(hosted.partitions_of(member_id)),
        )
        return json_reply(reply)

    async def show_cooperative(self, call: Call) -> Response:
        """Return one group with its members, its options and its rebalances."""
        return json_reply(cooperative_detail_of(self._groups.get(call.path["group"])))

    async def show_rebalances(self, call: Call) -> Response:
        """Return how the rebalances of a group went since the broker started."""
        return json_reply(stats_of(self._groups.get(call.path["group"]).tally))

    async def show_all_rebalances(self, _call: Call) -> Response:
        """Return how all rebalances went since the broker started."""
        return json_reply(stats_of(self._groups.tally))
