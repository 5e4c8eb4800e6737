"""Consumer groups over HTTP: their members come, stay and go."""

import time
from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.units import format_duration_ms
from goqueue.core.groups.options import HEARTBEAT_INTERVAL_MS
from goqueue.core.groups.rebalance import EAGER
from goqueue.runtime.broker import Broker
from goqueue.transport.http.call import Call
from goqueue.transport.http.group_views import (
    detail_of,
    first_topic_of,
    join_request,
    places,
    required_member,
)
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
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
)

TAG: Final = "groups"

_JOIN: Final = msgspec.json.Decoder(GroupJoin)
_HEARTBEAT: Final = msgspec.json.Decoder(HeartbeatCall)
_MEMBER: Final = msgspec.json.Decoder(MemberCall)
_FORCE: Final = Parameter(
    name="force", text="Delete the group even if it has members.", kind="boolean"
)


class GroupRoutes:
    """Shows groups and ends them; lets members in and out."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups = broker.groups

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with groups."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        large, conflict = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.CONFLICT
        one = "/groups/{group}"
        return (
            Operation(
                method="POST", path=f"{one}/heartbeat", answer=self.heartbeat, tag=TAG,
                body=HeartbeatCall, reply=HeartbeatReply, errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="POST", path=f"{one}/join", answer=self.join_group, tag=TAG,
                body=GroupJoin, reply=GroupJoined, errors=(bad, absent, conflict, large),
            ),
            Operation(
                method="POST", path=f"{one}/leave", answer=self.leave_group, tag=TAG,
                body=MemberCall, reply=Left, errors=(bad, absent, large),
            ),
            Operation(
                method="GET", path="/groups", answer=self.list_groups, tag=TAG, reply=GroupList
            ),
            Operation(
                method="GET", path=one, answer=self.show_group, tag=TAG, reply=GroupDetail,
                errors=(absent,),
            ),
            Operation(
                method="DELETE", path=one, answer=self.delete_group, tag=TAG, reply=GroupDeleted,
                parameters=(_FORCE,), errors=(absent, conflict),
            ),
        )  # fmt: skip

    async def join_group(self, call: Call) -> Response:
        """Come into a group, or come back; everything is shared out anew at once.

        The group is made by its first join, with the options that states. Members say that they
        are there every few seconds; who is silent for the session timeout is gone.
        """
        wanted = await call.body(_JOIN, bytes_max=self._broker.config.http_body_bytes_max)
        request = join_request(wanted, protocol=EAGER)
        hosted, member_id = await self._groups.join(call.path["group"], request)
        member = hosted.check_member(member_id)
        joined = GroupJoined(
            member_id=member_id,
            generation=hosted.generation,
            leader_id=hosted.group.leader_id or member_id,
            partitions=first_topic_of(hosted, member),
            assignments=places(hosted.partitions_of(member_id)),
            members=list(hosted.members),
            protocol=hosted.group.protocol,
            assignor=hosted.group.assignor,
            heartbeat_interval=format_duration_ms(HEARTBEAT_INTERVAL_MS),
            options=hosted.options,
        )
        return json_reply(joined)

    async def heartbeat(self, call: Call) -> Response:
        """Say that a member is there; a generation that is over answers 409."""
        started = time.perf_counter()
        said = await call.body(_HEARTBEAT, bytes_max=self._broker.config.http_body_bytes_max)
        hosted = self._groups.get(call.path["group"])
        await hosted.settled()
        hosted.heartbeat(required_member(said.member_id), said.generation)
        hosted.observe_heartbeat(time.perf_counter() - started)
        return json_reply(HeartbeatReply())

    async def leave_group(self, call: Call) -> Response:
        """Go; what the member had is shared out among the others."""
        said = await call.body(_MEMBER, bytes_max=self._broker.config.http_body_bytes_max)
        await self._groups.leave(call.path["group"], required_member(said.member_id))
        return json_reply(Left())

    async def list_groups(self, _call: Call) -> Response:
        """Return all groups."""
        groups = [
            GroupSummary(
                id=hosted.name,
                state=hosted.state.value,
                members=len(hosted.members),
                generation=hosted.generation,
                topics=list(hosted.topics),
                mode=hosted.options.mode,
            )
            for hosted in self._groups
        ]
        return json_reply(GroupList(groups=groups))

    async def show_group(self, call: Call) -> Response:
        """Return one group with its members and its options."""
        return json_reply(detail_of(self._groups.get(call.path["group"])))

    async def delete_group(self, call: Call) -> Response:
        """End a group with everything known of it; one that has members only with ``force``."""
        name = call.path["group"]
        await self._groups.delete(name, is_forced=call.flag("force"))
        return json_reply(GroupDeleted(group=name))
