"""Being a member of a group: joining, saying that one is there, giving partitions up, leaving."""

from collections.abc import Iterable, Mapping

from goqueue.base.errors import (
    GroupNotFoundError,
    NoRebalanceError,
    StaleGenerationError,
    UnknownMemberError,
)
from goqueue.base.units import SECOND_MS
from goqueue.client.aio.link import Link, call
from goqueue.client.consumer.hold import Place
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.client.consumer.targets import NOT_A_MEMBER
from goqueue.client.protocol.exchange import ReplyHeader
from goqueue.wire import calls, group_calls, queue_calls
from goqueue.wire.packet import Operation


class Membership:
    """A consumer's place in its group. Runs in the client's event loop."""

    def __init__(self, link: Link, options: ConsumerOptions, *, timeout_s: float) -> None:
        self.member_id = ""
        self.generation = 0
        self.interval_s = 3.0
        self.assigned: list[Place] = []
        self.group_options: dict[str, str | int | bool] = {}
        self._link = link
        self._options = options
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<Membership of {self.member_id} in {self._options.group}>"

    async def join(self) -> bool:
        """Come in or back in; tell whether it is as the member of before."""
        before = self.member_id
        try:
            reply = await self._join(before or None)
        except (UnknownMemberError, GroupNotFoundError):
            if not before:
                raise
            reply = await self._join(None)
        self.member_id = reply.member_id
        self.interval_s = reply.heartbeat_interval_ms / SECOND_MS
        self.group_options = reply.options
        self._note(reply.assignment)
        return self.member_id == before

    async def _join(self, member_id: str | None) -> group_calls.Membership:
        options = self._options
        header = group_calls.JoinGroup(
            options.group,
            options.name,
            list(options.topics),
            options.protocol,
            options.assignor,
            member_id,
            options.group_options(),
        )
        return await self._call(Operation.JOIN_GROUP, header, group_calls.Membership)

    async def beat(self) -> group_calls.MemberAssignment:
        """Say that we are there; return what we are to do."""
        header = group_calls.Heartbeat(self._options.group, self.member_id, self.generation)
        reply = await self._call(Operation.HEARTBEAT, header, group_calls.MemberAssignment)
        self._note(reply)
        return reply

    async def revoked(self, places: Iterable[Place], generation: int) -> None:
        """Say that partitions have been given up."""
        header = group_calls.Revoked(
            self._options.group, self.member_id, generation, by_topic(places)
        )
        try:
            await self._call(Operation.REVOKED, header, group_calls.RevokedReply)
        except (NoRebalanceError, StaleGenerationError):
            # Overtaken: the next heartbeat tells what is asked now.
            return

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        """Settle everything before the offsets."""
        places = [
            queue_calls.OffsetOf(topic, partition, offset)
            for (topic, partition), offset in offsets.items()
        ]
        header = queue_calls.CommitOffsets(
            self._options.group, self.member_id, self.generation, places
        )
        await self._call(Operation.COMMIT_OFFSETS, header, calls.Nothing)

    async def leave(self) -> None:
        """Go; what is still held goes back at once."""
        member_id, self.member_id = self.member_id, ""
        if not member_id:
            return
        header = group_calls.LeaveGroup(self._options.group, member_id)
        try:
            await self._call(Operation.LEAVE_GROUP, header, calls.Nothing)
        except NOT_A_MEMBER:
            return

    def _note(self, assignment: group_calls.MemberAssignment) -> None:
        self.generation = assignment.generation
        self.assigned = places_of(assignment.assignments)

    async def _call(
        self, operation: Operation, header: calls.Call, kind: type[ReplyHeader]
    ) -> ReplyHeader:
        return await call(self._link, operation, header, kind, timeout_s=self._timeout_s)


def places_of(parts: Iterable[group_calls.TopicPartitions]) -> list[Place]:
    """Return partitions one by one."""
    return [(part.topic, partition) for part in parts for partition in part.partitions]


def by_topic(places: Iterable[Place]) -> list[group_calls.TopicPartitions]:
    """Return partitions as they travel."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return [group_calls.TopicPartitions(topic, ones) for topic, ones in found.items()]
