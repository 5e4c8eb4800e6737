"""Sending in a loop before the broker was even asked how many partitions there are."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import BufferFullError, PartitionNotFoundError
from goqueue.base.limits import BATCH_BYTES_MAX, BATCH_ROWS_MAX
from tests.transport.native.running import Running

TOPIC = "orders"
T = TypeVar("T")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data: Path = tmp_path_factory.mktemp("early") / "data"
    with Running(data) as server:
        yield server.address


def run(
    address: str, scenario: Callable[[goqueue.aio.AsyncClient], Awaitable[T]], partitions: int = 1
) -> T:
    """Run a scenario with a client and a topic of its own."""

    async def body() -> T:
        async with await goqueue.aio.connect(address) as client:
            await client.create_topic(TOPIC, partitions=partitions)
            try:
                return await scenario(client)
            finally:
                await client.delete_topic(TOPIC)

    return asyncio.run(body())


def test_more_messages_than_a_batch_may_hold(address: str) -> None:
    """Without one await between them, very many small messages all get their place."""

    async def scenario(client: goqueue.aio.AsyncClient) -> None:
        producer = client.producer(TOPIC, linger_ms=1)
        futures = [producer.send(b"") for _ in range(2 * BATCH_ROWS_MAX + 5)]
        await producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(len(futures)))

    run(address, scenario)


def test_more_bytes_than_a_batch_may_hold(address: str) -> None:
    """The same for few large ones."""

    async def scenario(client: goqueue.aio.AsyncClient) -> None:
        producer = client.producer(TOPIC)
        futures = [producer.send(bytes(1 << 20)) for _ in range(2 * BATCH_BYTES_MAX >> 20)]
        await producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(len(futures)))

    run(address, scenario)


def test_the_buffer_bounds_what_is_gathered_early(address: str) -> None:
    """Who sends on without ever waiting is stopped at the limit, and nothing accepted is lost."""

    async def scenario(client: goqueue.aio.AsyncClient) -> None:
        producer = client.producer(TOPIC, buffer_bytes=1 << 20)
        futures: list[goqueue.SendFuture] = []
        with pytest.raises(BufferFullError):
            futures.extend(producer.send(bytes(1_000)) for _ in range(100_000))
        assert len(futures) < 3_000
        await producer.drain()
        futures.append(producer.send(b"room"))
        await producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(len(futures)))

    run(address, scenario)


def test_a_partition_that_does_not_exist_fails_its_own_message(address: str) -> None:
    """It could not be refused at once; it is refused alone."""

    async def scenario(client: goqueue.aio.AsyncClient) -> None:
        producer = client.producer(TOPIC)
        good = [producer.send(b"good", partition=number % 2) for number in range(10)]
        bad = producer.send(b"bad", partition=7)
        with pytest.raises(PartitionNotFoundError):
            producer.send(b"worse", partition=-1)
        with pytest.raises(PartitionNotFoundError, match="1 messages were not published"):
            await producer.flush()
        with pytest.raises(PartitionNotFoundError):
            await bad
        assert sorted(one.result(0).offset for one in good) == sorted([*range(5)] * 2)
        assert (await producer.send(b"later", partition=0)).offset == 5

    run(address, scenario, partitions=2)


def test_thousands_of_awaits_at_once(address: str) -> None:
    """Each task gets the place of its own message."""

    async def scenario(client: goqueue.aio.AsyncClient) -> None:
        producer = client.producer(TOPIC)

        async def send(number: int) -> tuple[int, int]:
            place = await producer.send(b"%d" % number)
            return number, place.offset

        places = dict(await asyncio.gather(*(send(number) for number in range(5_000))))
        async for message in client.read(TOPIC):
            assert places.pop(int(message.value or b"")) == message.offset
        assert places == {}

    run(address, scenario)


def test_readers_and_producers_share_a_loop(address: str) -> None:
    """Several followers on one connection all see what is sent on it."""

    async def scenario(client: goqueue.aio.AsyncClient) -> None:
        async def follow() -> list[int]:
            offsets: list[int] = []
            async for message in client.read(TOPIC, follow=True):
                offsets.append(message.offset)
                if len(offsets) == 200:
                    break
            return offsets

        followers = [asyncio.create_task(follow()) for _ in range(20)]
        producer = client.producer(TOPIC, linger_ms=0)
        for number in range(200):
            await producer.send(b"%d" % number)
        assert await asyncio.gather(*followers) == [list(range(200))] * 20

    run(address, scenario)
