"""Groups through the SDK and the native protocol, against a real broker."""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import (
    GroupConflictError,
    GroupNotEmptyError,
    GroupNotFoundError,
    InvalidRequestError,
    StaleGenerationError,
    UnknownMemberError,
)
from goqueue.client.aio.link import NativeLink
from goqueue.client.protocol.exchange import ReplyHeader, decode
from goqueue.wire import calls, group_calls
from goqueue.wire.packet import Operation

_numbers = itertools.count()


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


class Talk:
    """Asks the broker in its own words."""

    def __init__(self, address: str) -> None:
        self._link = NativeLink(address)

    async def ask(
        self, operation: Operation, header: calls.Call, kind: type[ReplyHeader]
    ) -> ReplyHeader:
        return decode((await self._link.request(operation, header)).header, kind)

    async def join(
        self, group: str, client: str, topic: str, **fields: Any
    ) -> group_calls.Membership:
        header = group_calls.JoinGroup(group, client, [topic], **fields)
        return await self.ask(Operation.JOIN_GROUP, header, group_calls.Membership)

    async def beat(
        self, group: str, member: str, generation: int | None = None
    ) -> group_calls.MemberAssignment:
        header = group_calls.Heartbeat(group, member, generation)
        return await self.ask(Operation.HEARTBEAT, header, group_calls.MemberAssignment)

    async def close(self) -> None:
        await self._link.close()


def numbers(parts: list[group_calls.TopicPartitions]) -> list[int]:
    return [number for part in parts for number in part.partitions]


def test_a_cooperative_group_over_the_native_protocol(
    address: str, client: goqueue.Client, topic: str, group: str
) -> None:
    """Join, heartbeat, revoke, describe, leave: each says what the others did."""

    async def main() -> None:
        talk = Talk(address)
        first = await talk.join(group, "a", topic, protocol="cooperative")
        second = await talk.join(group, "b", topic)
        assert numbers(first.assignment.assignments) == [0, 1, 2]
        assert (first.protocol, first.assignor) == ("cooperative", "sticky")
        assert second.leader_id == first.member_id
        assert second.assignment.state == "pending_assign"

        told = await talk.beat(group, first.member_id, 1)
        assert (told.generation, told.state) == (2, "pending_revoke")
        assert numbers(told.assignments) == [0, 1]
        assert numbers(told.to_revoke) == [2]
        assert told.revoke_within_ms is not None
        assert 50_000 < told.revoke_within_ms <= 60_000
        gives = group_calls.Revoked(group, first.member_id, 2, told.to_revoke)
        reply = await talk.ask(Operation.REVOKED, gives, group_calls.RevokedReply)
        assert reply == group_calls.RevokedReply(0, "none")
        assert numbers((await talk.beat(group, second.member_id)).assignments) == [2]

        leaves = group_calls.LeaveGroup(group, first.member_id)
        await talk.ask(Operation.LEAVE_GROUP, leaves, calls.Nothing)
        assert numbers((await talk.beat(group, second.member_id)).assignments) == [0, 1, 2]
        with pytest.raises(UnknownMemberError):
            await talk.beat(group, first.member_id)
        with pytest.raises(StaleGenerationError):
            await talk.beat(group, second.member_id, 9)
        await talk.close()

    asyncio.run(main())
    shown = client.describe_group(group)
    assert (shown.state, shown.generation, shown.protocol) == ("Stable", 3, "cooperative")
    assert [member.client_id for member in shown.members] == ["b"]
    assert shown.options["visibility_timeout_ms"] == 30_000
    assert group in [one.name for one in client.list_groups()]
    with pytest.raises(GroupNotEmptyError):
        client.delete_group(group)
    client.delete_group(group, force=True)
    with pytest.raises(GroupNotFoundError):
        client.describe_group(group)


def test_joins_that_cannot_be(address: str, client: goqueue.Client, topic: str, group: str) -> None:
    """A bad join is refused with the error of its own kind, and changes nothing."""

    async def main() -> None:
        talk = Talk(address)
        await talk.join(group, "a", topic, options={"mode": "shared", "max_retries": 5})
        for error, fields in (
            (GroupConflictError, {"options": {"max_retries": 6}}),
            (GroupConflictError, {"assignor": "range"}),
            (UnknownMemberError, {"member_id": "a-0"}),
            (InvalidRequestError, {"options": {"visibility_timeout": "1ms"}}),
            (InvalidRequestError, {"options": {"colour": True}}),
            (InvalidRequestError, {"protocol": "x" * 2_000}),
        ):
            with pytest.raises(error):
                await talk.join(group, "b", topic, **fields)
        with pytest.raises(InvalidRequestError):
            await talk.join("../" + group, "b", topic)
        await talk.close()

    before = [one.name for one in client.list_groups()]
    asyncio.run(main())
    assert [one.name for one in client.list_groups()] == sorted([*before, group])
    assert len(client.describe_group(group).members) == 1


def test_the_asynchronous_client_has_the_same_calls(address: str, topic: str, group: str) -> None:
    """List, describe and delete, awaited."""

    async def main() -> None:
        talk = Talk(address)
        await talk.join(group, "a", topic)
        await talk.close()
        async with await goqueue.aio.connect(address) as client:
            assert group in [one.name for one in await client.list_groups()]
            shown = await client.describe_group(group)
            assert msgspec.to_builtins(shown.members[0].assignments) == [[topic, [0, 1, 2]]]
            await client.delete_group(group, force=True)
            with pytest.raises(GroupNotFoundError):
                await client.delete_group(group)

    asyncio.run(main())
