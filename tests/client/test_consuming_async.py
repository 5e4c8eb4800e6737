"""The asynchronous consumer: the same promises in an event loop."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import (
    ClosedError,
    InvalidRequestError,
    StaleReceiptError,
    TopicNotFoundError,
)
from tests.client.consuming import SECONDS_MAX, in_flight, lag, outlive, publish

Scenario = Callable[[goqueue.aio.AsyncClient], Awaitable[None]]


def run(address: str, scenario: Scenario) -> None:
    async def main() -> None:
        async with await goqueue.aio.connect(address) as client:
            async with asyncio.timeout(SECONDS_MAX):
                await scenario(client)

    asyncio.run(main())


def test_every_message_comes_once(address: str, client: goqueue.Client, topic: str) -> None:
    """A loop with one ack per message sees everything once and leaves no lag."""
    values = publish(client, topic, 5_000)

    async def scenario(other: goqueue.aio.AsyncClient) -> None:
        found: list[bytes] = []
        async with other.consumer(topic, [topic]) as consumer:
            async for message in consumer:
                found.append(message.value or b"")
                message.ack()
                if len(found) == len(values):
                    break
            await consumer.flush()
            assert lag(client, topic) == 0
        assert sorted(found) == sorted(values)

    run(address, scenario)


def test_nack_and_reject(address: str, client: goqueue.Client, topic: str) -> None:
    """A nacked message comes again, a rejected one does not; each is settled once."""
    publish(client, topic, 3)

    async def scenario(other: goqueue.aio.AsyncClient) -> None:
        seen: list[tuple[bytes | None, int]] = []
        async with other.consumer(topic, [topic]) as consumer:
            async for message in consumer:
                seen.append((message.value, message.delivery_count))
                if seen[-1] == (b"0", 1):
                    message.nack(delay=0.01, reason="again")
                elif message.value == b"1":
                    message.reject("never")
                else:
                    message.ack()
                with pytest.raises(StaleReceiptError):
                    message.ack()
                if len(seen) == 4:
                    break
        assert sorted(seen) == [(b"0", 1), (b"0", 2), (b"1", 1), (b"2", 1)]

    run(address, scenario)


def test_handlers_side_by_side(address: str, client: goqueue.Client, topic: str) -> None:
    """``run`` has as many handlers under way as asked for, acks on return, nacks on errors."""
    publish(client, topic, 40)

    async def scenario(other: goqueue.aio.AsyncClient) -> None:
        seen: list[int] = []
        together = asyncio.Barrier(8)
        async with other.consumer(topic, [topic]) as consumer:

            async def handle(message: goqueue.Delivery) -> None:
                if message.delivery_count == 1:
                    await together.wait()
                seen.append(message.delivery_count)
                if len(seen) == 41:
                    consumer.stop()
                if message.value == b"7" and message.delivery_count == 1:
                    raise ValueError("once more")

            await consumer.run(handle, concurrency=8)
            assert lag(client, topic) == 0
        assert sorted(seen) == [1] * 40 + [2]

    run(address, scenario)


def test_slow_handlers_keep_their_leases(address: str, client: goqueue.Client, topic: str) -> None:
    """A handler may take several times the visibility timeout, and so may those who wait."""
    publish(client, topic, 3)

    async def scenario(other: goqueue.aio.AsyncClient) -> None:
        counts: list[int] = []
        options = {"visibility_timeout": "2s", "max_retries": 0}
        async with other.consumer(topic, [topic], **options) as consumer:

            async def handle(message: goqueue.Delivery) -> None:
                if not counts:
                    await asyncio.to_thread(outlive, message, seconds=4)
                counts.append(message.delivery_count)
                if len(counts) == 3:
                    consumer.stop()

            await consumer.run(handle)
        assert counts == [1, 1, 1]
        assert lag(client, topic) == 0

    run(address, scenario)


def test_cancelling_drains(address: str, client: goqueue.Client, topic: str) -> None:
    """A cancelled ``run`` lets its handlers finish; the rest is given back on close."""
    publish(client, topic, 100)

    async def scenario(other: goqueue.aio.AsyncClient) -> None:
        begun = asyncio.Semaphore(0)
        go_on = asyncio.Event()
        async with other.consumer(topic, [topic]) as consumer:

            async def handle(_: goqueue.Delivery) -> None:
                begun.release()
                await go_on.wait()

            running = asyncio.create_task(consumer.run(handle, concurrency=3))
            for _ in range(3):
                await begun.acquire()
            running.cancel()
            asyncio.get_running_loop().call_later(0.05, go_on.set)
            with pytest.raises(asyncio.CancelledError):
                await running
        assert lag(client, topic) == 97
        assert in_flight(client, topic) == 0

    run(address, scenario)


def test_auto_ack_and_poll(address: str, client: goqueue.Client, topic: str) -> None:
    """Asking for the next acks the one before; ``poll`` returns some at once."""
    publish(client, topic, 20)

    async def scenario(other: goqueue.aio.AsyncClient) -> None:
        count = 0
        async with other.consumer(topic, [topic], auto_ack=True) as consumer:
            async for _ in consumer:
                count += 1
                if count == 11:
                    break
        assert lag(client, topic) == 10
        async with other.consumer(topic, [topic]) as consumer:
            found = 0
            while found < 10:
                for message in await consumer.poll(5):
                    message.ack()
                    found += 1
            assert await consumer.poll(wait_s=0.05) == []

    run(address, scenario)


def test_errors(address: str, client: goqueue.Client, topic: str) -> None:
    """What is wrong is told when the consumer is made or joins; a closed one says so."""

    async def scenario(other: goqueue.aio.AsyncClient) -> None:
        with pytest.raises(InvalidRequestError, match="prefetch"):
            other.consumer(topic, [topic], prefetch=0)
        with pytest.raises(TopicNotFoundError):
            await other.consumer(topic, ["missing"]).start()
        consumer = other.consumer(topic, [topic])
        await consumer.start()
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.poll()
        assert client.describe_group(topic).members == []

    run(address, scenario)


def test_closing_the_client_closes_its_consumers(
    address: str, client: goqueue.Client, topic: str
) -> None:
    """What they hold goes back, and they leave the group."""
    publish(client, topic, 10)

    async def scenario(other: goqueue.aio.AsyncClient) -> None:
        assert await other.consumer(topic, [topic]).poll(1)
        assert in_flight(client, topic) > 0

    run(address, scenario)

    assert in_flight(client, topic) == 0
    assert client.describe_group(topic).members == []


def test_offsets(address: str, client: goqueue.Client, topic: str) -> None:
    """The same calls on groups as the synchronous client's."""
    publish(client, topic, 30)

    async def scenario(other: goqueue.aio.AsyncClient) -> None:
        async with other.consumer(topic, [topic]) as consumer:
            await consumer.poll()
            await consumer.commit({(topic, 0): 3})
            assert (await other.group_offsets(topic))[topic, 0] == 3
        assert sum((await other.reset_offsets(topic, topic, "latest")).values()) == 30
        assert sum(part.lag for part in await other.group_progress(topic)) == 0

    run(address, scenario)
