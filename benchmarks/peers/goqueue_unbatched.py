"""GoQueue one message at a time: ``publish``, and a shared group with ``prefetch=1``."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

import goqueue
import goqueue.aio
from benchmarks.child import LOOPBACK
from benchmarks.messages import Message
from benchmarks.peers.peer import PARTITIONS
from benchmarks.peers.unbatched import AsyncPublish, AsyncTake, Publish, Take, Unbatched


@dataclass(frozen=True, slots=True, kw_only=True)
class GoQueueUnbatched(Unbatched):
    """The SDK: what runs in one process shares one client."""

    @contextmanager
    def publisher(self, topic: str) -> Iterator[Publish]:
        """Call ``publish``."""
        with (
            goqueue.connect(self._address) as client,
            client.producer(topic, linger_ms=0) as producer,
        ):
            yield lambda message: producer.publish(message.value, key=message.key)

    @asynccontextmanager
    async def publisher_async(self, topic: str) -> AsyncIterator[AsyncPublish]:
        """Await ``publish``."""
        async with (
            await goqueue.aio.connect(self._address) as client,
            client.producer(topic, linger_ms=0) as producer,
        ):
            yield lambda message: producer.publish(message.value, key=message.key)

    def fill(self, queue: str, jobs: Iterable[Message], *, durability: str) -> None:
        """Make a topic; the group begins at its start."""
        with goqueue.connect(self._address) as client:
            client.create_topic(queue, partitions=PARTITIONS, durability=durability)
            with client.producer(queue) as producer:
                for key, value in jobs:
                    producer.send(value, key=key)

    def left(self, queue: str) -> int:
        """Add up what the group has not acked."""
        with goqueue.connect(self._address) as client:
            return sum(part.lag for part in client.group_progress(queue))

    def remove(self, queue: str) -> None:
        """Remove the group and the topic."""
        with goqueue.connect(self._address) as client:
            client.delete_group(queue)
            client.delete_topic(queue)

    @contextmanager
    def workers(self, queue: str, *, count: int) -> Iterator[list[Take]]:
        """One consumer to a thread, all of one client."""
        with goqueue.connect(self._address) as client, ExitStack() as stack:
            consumers = [
                stack.enter_context(client.consumer(queue, [queue], mode="shared", prefetch=1))
                for _ in range(count)
            ]
            yield [_taker(consumer) for consumer in consumers]

    @asynccontextmanager
    async def workers_async(self, queue: str, *, count: int) -> AsyncIterator[list[AsyncTake]]:
        """One consumer to a task, all of one client."""
        async with await goqueue.aio.connect(self._address) as client, AsyncExitStack() as stack:
            consumers = [
                await stack.enter_async_context(
                    client.consumer(queue, [queue], mode="shared", prefetch=1)
                )
                for _ in range(count)
            ]
            yield [_async_taker(consumer) for consumer in consumers]

    @property
    def _address(self) -> str:
        return f"{LOOPBACK}:{self.port}"


def _taker(consumer: goqueue.Consumer) -> Take:
    jobs = iter(consumer)

    def take() -> None:
        next(jobs).ack()

    return take


def _async_taker(consumer: goqueue.aio.AsyncConsumer) -> AsyncTake:
    jobs = aiter(consumer)

    async def take() -> None:
        (await anext(jobs)).ack()

    return take
