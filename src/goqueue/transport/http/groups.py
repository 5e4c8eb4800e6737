"""Consumer groups over HTTP: their members come, stay and go."""

from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.units import format_duration_ms
from goqueue.service.service import Service
from goqueue.transport.http.call import Call
from goqueue.transport.http.group_views import detail_of, join_request, required_member
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.calls import Nothing
from goqueue.wire.group_calls import DeleteGroup, Heartbeat, LeaveGroup
from goqueue.wire.http.groups import (
    GroupDeleted,
    GroupDetail,
    GroupJoin,
    GroupJoined,
    GroupList,
    GroupSummary,
    HeartbeatCall,
    HeartbeatReply,
    Left,
    MemberCall,
    options_of,
    places_of,
)
from goqueue.wire.queue_calls import GroupCall

TAG: Final = "groups"

_JOIN: Final = msgspec.json.Decoder(GroupJoin)
_HEARTBEAT: Final = msgspec.json.Decoder(HeartbeatCall)
_MEMBER: Final = msgspec.json.Decoder(MemberCall)
_FORCE: Final = Parameter(
    name="force", text="Delete the group even if it has members.", kind="boolean"
)


class GroupRoutes:
    """Shows groups and ends them; lets members in and out."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._groups = service.groups

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with groups."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        large, conflict = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.CONFLICT
        one = "/groups/{group}"
        return (
            Operation(
                method="POST", path=f"{one}/heartbeat", answer=self.heartbeat, tag=TAG,
                deed=Deed.HEARTBEAT,
                body=HeartbeatCall, reply=HeartbeatReply, errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="POST", path=f"{one}/join", answer=self.join_group, tag=TAG,
                deed=Deed.JOIN_GROUP,
                body=GroupJoin, reply=GroupJoined, errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="POST", path=f"{one}/leave", answer=self.leave_group, tag=TAG,
                deed=Deed.LEAVE_GROUP, body=MemberCall, reply=Left, errors=(bad, absent, large),
            ),
            Operation(
                method="GET", path="/groups", answer=self.list_groups, tag=TAG, reply=GroupList,
                deed=Deed.LIST_GROUPS,
            ),
            Operation(
                method="GET", path=one, answer=self.show_group, tag=TAG, reply=GroupDetail,
                deed=Deed.DESCRIBE_GROUP, errors=(absent,),
            ),
            Operation(
                method="DELETE", path=one, answer=self.delete_group, tag=TAG, reply=GroupDeleted,
                deed=Deed.DELETE_GROUP, parameters=(_FORCE,), errors=(absent, conflict),
            ),
        )  # fmt: skip

    async def join_group(self, call: Call) -> Response:
        """Come into a group, or come back; everything is shared out anew at once.

        The group is made by its first join, with the options that states. Members say that they
        are there every few seconds; who is silent for the session timeout is gone.
        """
        wanted = await call.body(_JOIN, bytes_max=self._service.config.http_body_bytes_max)
        request = join_request(call.path["group"], wanted, protocol="eager")
        member = await self._groups.join(call.grant, request)
        outline = await self._groups.outline(call.grant, request.group)
        assigned = member.assignment.assignments
        first = [one.partitions for one in assigned if one.topic == request.topics[0]]
        joined = GroupJoined(
            member_id=member.member_id,
            generation=member.assignment.generation,
            leader_id=member.leader_id,
            partitions=[number for numbers in first for number in numbers],
            assignments=places_of(assigned),
            members=outline.members,
            protocol=member.protocol,
            assignor=member.assignor,
            heartbeat_interval=format_duration_ms(member.heartbeat_interval_ms),
            options=options_of(member.options),
        )
        return json_reply(joined)

    async def heartbeat(self, call: Call) -> Response:
        """Say that a member is there; a generation that is over answers 409."""
        said = await call.body(_HEARTBEAT, bytes_max=self._service.config.http_body_bytes_max)
        member = required_member(said.member_id)
        beat = Heartbeat(call.path["group"], member, said.generation)
        await self._groups.heartbeat(call.grant, beat)
        return json_reply(HeartbeatReply())

    async def leave_group(self, call: Call) -> Response:
        """Go; what the member had is shared out among the others."""
        said = await call.body(_MEMBER, bytes_max=self._service.config.http_body_bytes_max)
        leaving = LeaveGroup(call.path["group"], required_member(said.member_id))
        await self._groups.leave(call.grant, leaving)
        return json_reply(Left())

    async def list_groups(self, call: Call) -> Response:
        """Return all groups."""
        listed = await self._groups.list_all(call.grant, Nothing())
        groups = [
            GroupSummary(
                id=one.name,
                state=one.state,
                members=one.members,
                generation=one.generation,
                topics=one.topics,
                mode=one.mode,
            )
            for one in listed.groups
        ]
        return json_reply(GroupList(groups=groups))

    async def show_group(self, call: Call) -> Response:
        """Return one group with its members and its options."""
        group = await self._groups.describe(call.grant, GroupCall(call.path["group"]))
        return json_reply(detail_of(group))

    async def delete_group(self, call: Call) -> Response:
        """End a group with everything known of it; one that has members only with ``force``."""
        name = call.path["group"]
        await self._groups.delete(call.grant, DeleteGroup(name, call.flag("force")))
        return json_reply(GroupDeleted(group=name))
