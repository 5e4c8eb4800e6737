"""NATS JetStream one message at a time: awaited publishes, and a pull consumer that fetches one."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any, TypeVar

import nats
import uvloop
from nats.js import api

from benchmarks.child import LOOPBACK
from benchmarks.messages import Message
from benchmarks.peers.unbatched import AsyncPublish, AsyncTake, Publish, Take, Unbatched

IN_FLIGHT_MAX = 4000
PENDING_BYTES_MAX = 256 * 1024 * 1024
REPLY_SECONDS_MAX = 30
GROUP = "workers"
Entered = TypeVar("Entered")
LOOKS_MAX = 500
LOOK_SECONDS = 0.01
"""Acks have no reply: how often, and how far apart, the harness looks whether all have arrived."""


@asynccontextmanager
async def jetstream(port: int) -> AsyncIterator[Any]:
    """Connect; send what is still buffered before closing."""
    connection: Any = await nats.connect(
        f"nats://{LOOPBACK}:{port}", pending_size=PENDING_BYTES_MAX
    )
    try:
        yield connection.jetstream(
            timeout=REPLY_SECONDS_MAX, publish_async_max_pending=IN_FLIGHT_MAX
        )
        await connection.flush()
    finally:
        await connection.close()


async def add_stream(stream: Any, topic: str) -> None:  # noqa: ANN401 - nats-py may be absent
    """Make a file-backed stream; the key is the last token of a message's subject."""
    await stream.add_stream(name=topic, subjects=[f"{topic}.*"], storage=api.StorageType.FILE)


async def publish_all(stream: Any, topic: str, messages: Iterable[Message]) -> None:  # noqa: ANN401 - as above
    """Publish with a window of unacknowledged messages."""
    for key, value in messages:
        await stream.publish_async(f"{topic}.{key.decode()}", value)
    await stream.publish_async_completed()


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsUnbatched(Unbatched):
    """nats-py, which has asyncio only: a thread runs its own connection's loop for each call."""

    @contextmanager
    def publisher(self, topic: str) -> Iterator[Publish]:
        """Run the loop until the acknowledgement is there."""
        with _entered(self.publisher_async(topic)) as (loop, publish):
            yield lambda message: loop.run_until_complete(publish(message))

    @asynccontextmanager
    async def publisher_async(self, topic: str) -> AsyncIterator[AsyncPublish]:
        """Await the acknowledgement; callers share one connection."""
        async with jetstream(self.port) as stream:
            publish = stream.publish
            yield lambda message: publish(f"{topic}.{message.key.decode()}", message.value)

    def fill(self, queue: str, jobs: Iterable[Message], *, durability: str) -> None:  # noqa: ARG002 - the server's
        """Make a stream with one durable pull consumer."""
        uvloop.run(self._fill(queue, jobs))

    def left(self, queue: str) -> int:
        """Add up what was never delivered and what was not acked."""
        return uvloop.run(self._left(queue))

    def remove(self, queue: str) -> None:
        """Remove the stream, and its consumer with it."""
        uvloop.run(self._remove(queue))

    @contextmanager
    def workers(self, queue: str, *, count: int) -> Iterator[list[Take]]:
        """One connection to a thread."""
        with ExitStack() as stack:
            yield [stack.enter_context(self._worker(queue)) for _ in range(count)]

    @asynccontextmanager
    async def workers_async(self, queue: str, *, count: int) -> AsyncIterator[list[AsyncTake]]:
        """One subscription to a task, all of one connection."""
        async with jetstream(self.port) as stream:
            yield [await _taker(stream, queue) for _ in range(count)]

    @contextmanager
    def _worker(self, queue: str) -> Iterator[Take]:
        with _entered(self.workers_async(queue, count=1)) as (loop, (take,)):
            yield lambda: loop.run_until_complete(take())

    async def _fill(self, queue: str, jobs: Iterable[Message]) -> None:
        async with jetstream(self.port) as stream:
            await add_stream(stream, queue)
            settings = api.ConsumerConfig(durable_name=GROUP, ack_policy=api.AckPolicy.EXPLICIT)
            await stream.add_consumer(queue, settings)
            await publish_all(stream, queue, jobs)

    async def _left(self, queue: str) -> int:
        async with jetstream(self.port) as stream:
            found = await stream.consumer_info(queue, GROUP)
            for _ in range(LOOKS_MAX):
                if not found.num_ack_pending:
                    break
                await asyncio.sleep(LOOK_SECONDS)
                found = await stream.consumer_info(queue, GROUP)
            return int(found.num_pending) + int(found.num_ack_pending)

    async def _remove(self, queue: str) -> None:
        async with jetstream(self.port) as stream:
            await stream.delete_stream(queue)


async def _taker(stream: Any, queue: str) -> AsyncTake:  # noqa: ANN401 - nats-py may be absent
    subscription = await stream.pull_subscribe_bind(consumer=GROUP, stream=queue)

    async def take() -> None:
        (message,) = await subscription.fetch(1, timeout=REPLY_SECONDS_MAX)
        await message.ack()

    return take


@contextmanager
def _entered(
    opened: AbstractAsyncContextManager[Entered],
) -> Iterator[tuple[asyncio.AbstractEventLoop, Entered]]:
    """Enter in a loop of its own, which the caller runs from one thread at a time."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        entered = loop.run_until_complete(opened.__aenter__())
        try:
            yield loop, entered
        finally:
            loop.run_until_complete(opened.__aexit__(None, None, None))
