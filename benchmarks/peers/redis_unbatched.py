"""Redis Streams one message at a time: XADD, and XREADGROUP for one entry followed by XACK."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio

from benchmarks.child import LOOPBACK
from benchmarks.messages import Message
from benchmarks.peers.peer import partition_names, partition_of
from benchmarks.peers.unbatched import AsyncPublish, AsyncTake, Publish, Take, Unbatched

FILL_COMMANDS = 1000
BLOCK_MS = 1000
SOCKET_SECONDS_MAX = 30
GROUP = "workers"


def stream_names(topic: str) -> list[bytes]:
    """Name the streams of a topic."""
    return [name.encode() for name in partition_names(topic)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUnbatched(Unbatched):
    """redis-py: what runs in one process shares one client, and so a pool of connections."""

    @contextmanager
    def publisher(self, topic: str) -> Iterator[Publish]:
        """Wait for the reply to XADD."""
        streams = stream_names(topic)
        with self._connect() as connection:
            xadd = connection.xadd
            yield lambda message: xadd(
                streams[partition_of(message.key)], {b"k": message.key, b"v": message.value}
            )

    @asynccontextmanager
    async def publisher_async(self, topic: str) -> AsyncIterator[AsyncPublish]:
        """Await the reply to XADD."""
        streams = stream_names(topic)
        async with self._connect_async() as connection:
            await connection.ping()
            xadd = connection.xadd
            yield lambda message: xadd(
                streams[partition_of(message.key)], {b"k": message.key, b"v": message.value}
            )

    def fill(self, queue: str, jobs: Iterable[Message], *, durability: str) -> None:  # noqa: ARG002 - the server's
        """Make one stream with a group that begins at its start."""
        with self._connect() as connection:
            connection.xgroup_create(queue, GROUP, id="0", mkstream=True)
            pipeline = connection.pipeline(transaction=False)
            for number, (key, value) in enumerate(jobs, start=1):
                pipeline.xadd(queue, {b"k": key, b"v": value})
                if number % FILL_COMMANDS == 0:
                    pipeline.execute()
            pipeline.execute()

    def left(self, queue: str) -> int:
        """Add up what was never delivered and what was not acked."""
        with self._connect() as connection:
            (group,) = connection.xinfo_groups(queue)
            return int(group["lag"]) + int(group["pending"])

    def remove(self, queue: str) -> None:
        """Remove the stream, and its group with it."""
        with self._connect() as connection:
            connection.delete(queue)

    @contextmanager
    def workers(self, queue: str, *, count: int) -> Iterator[list[Take]]:
        """One name in the group to a thread."""
        with self._connect() as connection:
            yield [_taker(connection, queue, worker=f"worker-{worker}") for worker in range(count)]

    @asynccontextmanager
    async def workers_async(self, queue: str, *, count: int) -> AsyncIterator[list[AsyncTake]]:
        """One name in the group to a task."""
        async with self._connect_async() as connection:
            yield [
                _async_taker(connection, queue, worker=f"worker-{worker}")
                for worker in range(count)
            ]

    def _connect(self) -> Any:  # noqa: ANN401 - redis-py types its replies as sync or async
        return redis.Redis(
            host=LOOPBACK, port=self.port, protocol=2, socket_timeout=SOCKET_SECONDS_MAX
        )

    def _connect_async(self) -> Any:  # noqa: ANN401 - as above
        return redis.asyncio.Redis(
            host=LOOPBACK, port=self.port, protocol=2, socket_timeout=SOCKET_SECONDS_MAX
        )


def _taker(connection: Any, queue: str, *, worker: str) -> Take:  # noqa: ANN401 - as above
    def take() -> None:
        found: Any = None
        while not found:
            found = connection.xreadgroup(GROUP, worker, {queue: ">"}, count=1, block=BLOCK_MS)
        ((_, ((identity, _),)),) = found
        connection.xack(queue, GROUP, identity)

    return take


def _async_taker(connection: Any, queue: str, *, worker: str) -> AsyncTake:  # noqa: ANN401 - as above
    async def take() -> None:
        found: Any = None
        while not found:
            found = await connection.xreadgroup(
                GROUP, worker, {queue: ">"}, count=1, block=BLOCK_MS
            )
        ((_, ((identity, _),)),) = found
        await connection.xack(queue, GROUP, identity)

    return take
