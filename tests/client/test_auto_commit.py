"""Consumers of a group that settles by itself: only what was handed out counts as done."""

import asyncio
from typing import Any

import pytest

import goqueue
import goqueue.aio
from goqueue.client.aio.link import NativeLink, call
from goqueue.client.blocking.channel import SocketChannel
from goqueue.client.blocking.link import ChannelRequest
from goqueue.client.consumer import polling
from goqueue.wire import calls, group_calls
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import Poll
from tests.client.consuming import SECONDS_MAX, eventually, in_flight, lag, publish, take

COUNT = 10


@pytest.fixture
def jobs(address: str, client: goqueue.Client, group: str) -> str:
    """Make a topic with messages, and a group of the same name that settles by itself."""
    client.create_topic(group, partitions=1)
    publish(client, group, COUNT)

    async def make() -> None:
        link = NativeLink(address)
        options: dict[str, str | int | bool] = {"auto_commit": True}
        join = group_calls.JoinGroup(group, "first", [group], options=options)
        first = await call(
            link, Operation.JOIN_GROUP, join, group_calls.Membership, timeout_s=SECONDS_MAX
        )
        leave = group_calls.LeaveGroup(group, first.member_id)
        await call(link, Operation.LEAVE_GROUP, leave, calls.Nothing, timeout_s=SECONDS_MAX)
        await link.close()

    asyncio.run(make())
    assert client.describe_group(group).options["auto_commit"] is True
    return group


def numbers(messages: list[goqueue.Delivery]) -> list[int]:
    return [int(message.value or b"") for message in messages]


def rest(client: goqueue.Client, jobs: str, count: int) -> list[int]:
    """Return what another consumer finds."""
    with client.consumer(jobs, [jobs]) as consumer:
        return numbers(take(consumer, count))


def test_asks_again_when_everything_was_handed_out(
    client: goqueue.Client, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving settles what was handed out, and gives back the rest."""
    polls: list[Operation] = []
    send = SocketChannel.send

    def noting(channel: SocketChannel, requests: list[ChannelRequest]) -> list[int]:
        polls.extend(one.operation for one in requests if one.operation is Operation.POLL)
        return send(channel, requests)

    monkeypatch.setattr(SocketChannel, "send", noting)
    polls_seen: list[int] = []
    with client.consumer(jobs, [jobs], prefetch=4) as consumer:
        for message in consumer:
            polls_seen.append(len(polls))
            if message.value == b"4":
                break

    assert polls_seen == [1, 1, 2, 2, 3]
    assert lag(client, jobs) == COUNT - 5
    assert rest(client, jobs, COUNT - 5) == [5, 6, 7, 8, 9]


def test_closing_gives_back_what_a_poll_brings(client: goqueue.Client, jobs: str) -> None:
    """The broker has leased it, and nobody here has seen the reply."""
    with client.consumer(jobs, [jobs]) as consumer:
        assert consumer.poll(timeout=0) == []
        eventually(lambda: in_flight(client, jobs) == COUNT)

    assert lag(client, jobs) == COUNT
    assert rest(client, jobs, COUNT) == list(range(COUNT))


def test_the_same_in_a_loop(
    address: str, client: goqueue.Client, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is anything fetched ahead there."""
    polls: list[Poll] = []

    def noting(*fields: Any) -> Poll:
        polls.append(Poll(*fields))
        return polls[-1]

    monkeypatch.setattr(polling, "Poll", noting)
    polls_seen: list[int] = []

    async def main() -> None:
        async with (
            await goqueue.aio.connect(address) as other,
            other.consumer(jobs, [jobs], prefetch=4) as consumer,
        ):
            async for message in consumer:
                polls_seen.append(len(polls))
                if message.value == b"4":
                    break

    asyncio.run(main())
    assert polls_seen == [1, 1, 2, 2, 3]
    assert rest(client, jobs, COUNT - 5) == [5, 6, 7, 8, 9]


def test_closing_in_a_loop_gives_back_what_a_poll_brings(
    address: str, client: goqueue.Client, jobs: str
) -> None:
    """Whether its reply is there or on its way."""

    async def main() -> None:
        async with (
            await goqueue.aio.connect(address) as other,
            other.consumer(jobs, [jobs]) as consumer,
        ):
            assert await consumer.poll(wait_s=0) == []
            await asyncio.to_thread(eventually, lambda: in_flight(client, jobs) == COUNT)

    asyncio.run(main())
    assert lag(client, jobs) == COUNT
    assert rest(client, jobs, COUNT) == list(range(COUNT))
