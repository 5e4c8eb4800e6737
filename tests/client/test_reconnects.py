"""A consumer that loses its connections comes back under its id and keeps what it had."""

import asyncio
from collections.abc import Iterator

import pytest

import goqueue
import goqueue.aio
from goqueue.wire.packet import Operation
from tests.client.consuming import SECONDS_MAX, eventually, lag, publish, take
from tests.client.proxy import Fate, Proxy

BEATS = 2
"""Heartbeats after a cut: the first at once, the next when every grace here is over."""


@pytest.fixture
def far(proxy: Proxy) -> Iterator[goqueue.Client]:
    with goqueue.connect(proxy.address) as client:
        yield client


def members(client: goqueue.Client, group: str) -> list[str]:
    return [one.id for one in client.describe_group(group).members]


def outlast_the_grace(proxy: Proxy) -> None:
    """Return when heartbeats have gone on for longer than the grace."""
    proxy.wait_for(Operation.HEARTBEAT, proxy.seen[Operation.HEARTBEAT] + BEATS)


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_cut_connections_cost_a_busy_consumer_nothing(
    proxy: Proxy, far: goqueue.Client, client: goqueue.Client, topic: str, mode: str
) -> None:
    """Nobody polls while a message is handled: the heartbeat is what comes back, at once."""
    publish(client, topic, 3)
    with far.consumer(topic, [topic], mode=mode, disconnect_grace="1s") as consumer:
        messages = take(consumer, 3)
        member, generation = consumer.member_id, client.describe_group(topic).generation
        proxy.cut()
        outlast_the_grace(proxy)

        assert members(client, topic) == [member] == [consumer.member_id]
        assert client.describe_group(topic).generation == generation
        for message in messages:
            assert message.delivery_count == 1
            message.ack()
        consumer.flush()
        assert lag(client, topic) == 0


def test_a_consumer_without_asyncio_and_one_with_it(
    proxy: Proxy, client: goqueue.Client, topic: str
) -> None:
    """The asynchronous one has a single connection, for polls and heartbeats alike."""
    publish(client, topic, 1)

    async def main() -> None:
        async with (
            await goqueue.aio.connect(proxy.address) as far,
            far.consumer(topic, [topic], disconnect_grace="1s") as consumer,
        ):
            (message,) = await consumer.poll(1, wait_s=SECONDS_MAX)
            member = consumer.member_id
            await asyncio.to_thread(proxy.cut)
            await asyncio.to_thread(outlast_the_grace, proxy)

            assert members(client, topic) == [member] == [consumer.member_id]
            message.ack()
            await consumer.flush()

    asyncio.run(main())
    assert lag(client, topic) == 0


def test_who_comes_back_too_late_is_a_new_member(
    proxy: Proxy, far: goqueue.Client, client: goqueue.Client, topic: str
) -> None:
    """What it held goes to others, and its settlements are refused; then it works on."""
    publish(client, topic, 1)
    refused: list[goqueue.Refusal] = []
    with far.consumer(topic, [topic], disconnect_grace=0, on_refused=refused.append) as consumer:
        (message,) = take(consumer, 1)
        member = consumer.member_id
        proxy.is_reachable = False
        proxy.cut()
        eventually(lambda: not members(client, topic), "the end of the membership")
        proxy.is_reachable = True
        message.ack()
        (again,) = take(consumer, 1)
        again.ack()
        consumer.flush()

        assert consumer.member_id != member
        assert again.delivery_count == 2
        assert [one.verb for one in refused] in ([], ["ack"])
        assert lag(client, topic) == 0


def test_a_half_open_connection_is_no_end(proxy: Proxy, client: goqueue.Client, topic: str) -> None:
    """The broker's side of a connection stays open: the session decides, as before."""
    with goqueue.connect(proxy.address) as far:
        consumer = far.consumer(topic, [topic], disconnect_grace=0, session_timeout="3s")
        member = consumer.member_id
        # The client's side ends; the broker hears neither of that nor of anything else.
        proxy.plan(Operation.HEARTBEAT, Fate.DELAY)
        proxy.plan(Operation.LEAVE_GROUP, *[Fate.LOSE_REQUEST] * 1_000)
        proxy.wait_for(Operation.JOIN_GROUP)
        consumer._upkeep.nudge()  # noqa: SLF001 - an early heartbeat
        assert members(client, topic) == [member]
        proxy.is_reachable = False
        eventually(lambda: not members(client, topic), "the end of the session")
        proxy.is_reachable = True
        proxy.plans_end()
        proxy.release()
