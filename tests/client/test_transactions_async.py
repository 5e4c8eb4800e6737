"""Transactions in an event loop: the same promises, awaited."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import goqueue
from goqueue import aio
from goqueue.base.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    TopicNotFoundError,
)


def play(address: str, story: Callable[[aio.AsyncClient], Awaitable[None]]) -> None:
    """Run a story with a client."""

    async def whole() -> None:
        async with await aio.connect(address) as client:
            await story(client)

    asyncio.run(asyncio.wait_for(whole(), 120))


async def values(
    client: aio.AsyncClient, topic: str, isolation: str = "read_committed"
) -> list[bytes]:
    """Return what a reader gets."""
    found = [message.value or b"" async for message in client.read(topic, isolation=isolation)]
    rows = 0
    async for batch in client.read_batches(topic, isolation=isolation):
        rows += batch.num_rows
    assert rows == len(found)
    return sorted(found)


def test_committed_or_aborted(address: str, client: goqueue.Client, topic: str) -> None:
    """A block commits where it ends and aborts where it raises, over topics."""
    client.create_topic(f"{topic}-other", partitions=2)

    async def story(client: aio.AsyncClient) -> None:
        async with client.producer(topic, transactional_id=topic) as producer:
            for number in range(6):
                try:
                    async with producer.transaction() as tx:
                        await tx.send(b"%d" % number)
                        tx.send(b"other %d" % number, topic=f"{topic}-other")
                        assert await values(client, topic) == [
                            b"%d" % n for n in range(0, number, 2)
                        ]
                        if number % 2:
                            raise ValueError  # noqa: TRY301 - a block that raises
                        await tx.commit(token=str(number))
                except ValueError:
                    assert number % 2
            assert int(producer.last_token) == 4
        assert await values(client, topic) == [b"0", b"2", b"4"]
        assert await values(client, f"{topic}-other") == [b"other 0", b"other 2", b"other 4"]
        assert len(await values(client, topic, "read_uncommitted")) == 6

    play(address, story)


def test_a_cancelled_task_aborts(address: str, topic: str) -> None:
    """Whoever is cancelled within the block leaves nothing behind, and the producer goes on."""

    async def story(client: aio.AsyncClient) -> None:
        producer = client.producer(topic, transactional_id=topic)
        begun = asyncio.Event()

        async def stuck() -> None:
            async with producer.transaction() as tx:
                await tx.send(b"stuck")
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(stuck())
        await begun.wait()
        with pytest.raises(InvalidTransactionStateError, match="one at a time"):
            await producer.transaction().begin()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction() as tx:
            tx.send(b"free")
        assert await values(client, topic) == [b"free"]

    play(address, story)


def test_acks_and_fencing(address: str, topic: str) -> None:
    """A message is settled with the commit; a zombie's commit settles nothing."""

    async def story(client: aio.AsyncClient) -> None:
        async with client.producer(topic) as plain:
            await plain.send(b"in")
        zombie = client.producer(topic, transactional_id=topic)
        async with client.consumer(topic, [topic]) as consumer:
            message = await anext(aiter(consumer))
            late = zombie.transaction()
            await late.begin()
            late.ack(message)
            async with client.producer(topic, transactional_id=topic) as successor:
                with pytest.raises(ProducerFencedError):
                    await late.commit()
                async with successor.transaction() as tx:
                    tx.ack(message)
                    tx.send(b"out")
            with pytest.raises(ProducerFencedError):
                await zombie.transaction().begin()
            assert await client.group_offsets(topic) == {
                (topic, number): int(number == message.partition) for number in range(3)
            }

    play(address, story)


def test_an_unknown_topic_undoes_the_transaction(address: str, topic: str) -> None:
    """It is found out while the transaction is open; its commit says so."""

    async def story(client: aio.AsyncClient) -> None:
        async with client.producer(topic, transactional_id=topic) as producer:
            tx = producer.transaction()
            await tx.begin()
            tx.send(b"here")
            nowhere = tx.send(b"nowhere", topic="nowhere")
            with pytest.raises(TopicNotFoundError):
                await tx.commit()
            with pytest.raises(TopicNotFoundError):
                await nowhere
            assert await values(client, topic) == []
        with pytest.raises(TopicNotFoundError):
            async with client.producer("nowhere", transactional_id="nobody"):
                pass

    play(address, story)
