"""NATS JetStream with nats-py: one file-backed stream, many publishes in flight."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar

import uvloop
from nats.js import api

from benchmarks.child import LOOPBACK, Child, free_port
from benchmarks.messages import Message
from benchmarks.pace import Pace
from benchmarks.peers.nats_unbatched import NatsUnbatched, add_stream, jetstream, publish_all
from benchmarks.peers.peer import (
    FOLLOW_SECONDS_MAX,
    Client,
    Peer,
    age_seconds,
    program,
    stamped,
)

FETCH_MESSAGES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsClient(Client):
    """A topic is a stream; the key is the last token of a message's subject."""

    def create(self, topic: str, *, partitions: int) -> None:  # noqa: ARG002 - a stream has one
        """Make a file-backed stream."""
        uvloop.run(self._create(topic))

    def delete(self, topic: str) -> None:
        """Remove the stream."""
        uvloop.run(self._delete(topic))

    def count(self, topic: str) -> int:
        """Ask the stream for its messages."""
        return uvloop.run(self._count(topic))

    def publish(self, topic: str, messages: Iterable[Message]) -> float:
        """Publish with a window of unacknowledged messages."""
        return uvloop.run(self._publish(topic, messages))

    def read(self, topic: str, *, count: int) -> float:
        """Read by an ordered push consumer, which needs no acks."""
        return uvloop.run(self._read(topic, count))

    def consume(self, topic: str, *, count: int) -> float:
        """Fetch from a pull consumer and ack each message."""
        return uvloop.run(self._consume(topic, count))

    def publish_each(self, topic: str, pace: Pace, *, value_bytes: int) -> list[float]:
        """Publish and wait for the acknowledgement."""
        return uvloop.run(self._publish_each(topic, pace, value_bytes))

    def follow(self, topic: str, *, count: int, ready: Callable[[], None]) -> list[float]:
        """Read by a push consumer that is there before the first message."""
        return uvloop.run(self._follow(topic, count, ready))

    async def _create(self, topic: str) -> None:
        async with jetstream(self.port) as stream:
            await add_stream(stream, topic)

    async def _delete(self, topic: str) -> None:
        async with jetstream(self.port) as stream:
            await stream.delete_stream(topic)

    async def _count(self, topic: str) -> int:
        async with jetstream(self.port) as stream:
            found = await stream.stream_info(topic)
            messages: int = found.state.messages
            return messages

    async def _publish(self, topic: str, messages: Iterable[Message]) -> float:
        async with jetstream(self.port) as stream:
            start = time.perf_counter()
            await publish_all(stream, topic, messages)
            return time.perf_counter() - start

    async def _read(self, topic: str, count: int) -> float:
        size = read = 0
        done = asyncio.Event()

        async def receive(message: Any) -> None:  # noqa: ANN401 - nats-py may be absent
            nonlocal size, read
            size += len(message.data)
            read += 1
            if read == count:
                done.set()

        async with jetstream(self.port) as stream:
            start = time.perf_counter()
            await self._subscribe(stream, topic, receive)
            await asyncio.wait_for(done.wait(), FOLLOW_SECONDS_MAX)
            return time.perf_counter() - start

    async def _consume(self, topic: str, count: int) -> float:
        read = size = 0
        async with jetstream(self.port) as stream:
            settings = api.ConsumerConfig(
                ack_policy=api.AckPolicy.EXPLICIT, max_ack_pending=4 * FETCH_MESSAGES
            )
            subscription = await stream.pull_subscribe(
                f"{topic}.*", durable=topic, stream=topic, config=settings
            )
            start = time.perf_counter()
            while read < count:
                for message in await subscription.fetch(min(FETCH_MESSAGES, count - read)):
                    size += len(message.data)
                    await message.ack()
                    read += 1
            return time.perf_counter() - start

    async def _publish_each(self, topic: str, pace: Pace, value_bytes: int) -> list[float]:
        latencies = []
        async with jetstream(self.port) as stream:
            started = time.perf_counter()
            for number in range(pace.count):
                await asyncio.sleep(max(0.0, pace.delay(number, started=started)))
                start = time.perf_counter()
                await stream.publish(f"{topic}.key", stamped(value_bytes))
                latencies.append(time.perf_counter() - start)
        return latencies

    async def _follow(self, topic: str, count: int, ready: Callable[[], None]) -> list[float]:
        ages: list[float] = []
        done = asyncio.Event()

        async def receive(message: Any) -> None:  # noqa: ANN401 - nats-py may be absent
            ages.append(age_seconds(message.data))
            if len(ages) == count:
                done.set()

        async with jetstream(self.port) as stream:
            await self._subscribe(stream, topic, receive)
            ready()
            await asyncio.wait_for(done.wait(), FOLLOW_SECONDS_MAX)
        return ages

    async def _subscribe(self, stream: Any, topic: str, receive: Any) -> None:  # noqa: ANN401 - as above
        await stream.subscribe(
            f"{topic}.*",
            stream=topic,
            cb=receive,
            ordered_consumer=True,
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )


class NatsJetStream(Peer):
    """A NATS server with JetStream in a directory."""

    name: ClassVar[str] = "nats"
    durability: ClassVar[str] = "written to the page cache, fsync every two minutes (default)"
    load_share: ClassVar[float] = 0.05

    def start(self) -> None:
        """Start the server."""
        self._program = program("nats-server", package="nats-server")
        self._port = free_port()
        argv = [self._program, "--addr", LOOPBACK, "--port", str(self._port), "--jetstream"]
        child = Child([*argv, "--store_dir", str(self._directory)], directory=self._directory)
        self._children.append(child)
        child.wait_port(self._port)

    def client(self) -> NatsClient:
        """Return a client of this server."""
        return NatsClient(port=self._port)

    def unbatched(self) -> NatsUnbatched:
        """Return a client that waits for each acknowledgement."""
        return NatsUnbatched(port=self._port)

    def version(self) -> str:
        """Ask the program, and name the client."""
        said = subprocess.run(
            [self._program, "--version"], capture_output=True, text=True, check=True
        )
        return f"{said.stdout.strip().replace(': v', ' ')}, nats-py {version('nats-py')}"
