"""RabbitMQ one message at a time: awaited confirms, and consumers with a prefetch of one."""

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pika

from benchmarks.child import LOOPBACK
from benchmarks.messages import Message
from benchmarks.peers import rabbitmq_loop
from benchmarks.peers.peer import partition_names, partition_of
from benchmarks.peers.rabbitmq_window import Publish as PublishAll
from benchmarks.peers.unbatched import AsyncPublish, AsyncTake, Publish, Take, Unbatched

PERSISTENT = pika.BasicProperties(delivery_mode=2)
LOOKS_MAX = 500
LOOK_SECONDS = 0.01
"""Acks have no reply: how often, and how far apart, the harness looks whether workers have left."""


def parameters(port: int) -> Any:  # noqa: ANN401 - pika ships no types
    """Say where the node is."""
    return pika.ConnectionParameters(LOOPBACK, port, heartbeat=0, blocked_connection_timeout=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitUnbatched(Unbatched):
    """pika: a thread has a connection of its own, tasks share one."""

    @contextmanager
    def publisher(self, topic: str) -> Iterator[Publish]:
        """Wait for the confirm."""
        queues = partition_names(topic)
        with self._connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()

            def publish(message: Message) -> None:
                properties = pika.BasicProperties(delivery_mode=2, message_id=message.key.decode())
                queue = queues[partition_of(message.key)]
                channel.basic_publish("", queue, message.value, properties)

            yield publish

    @asynccontextmanager
    async def publisher_async(self, topic: str) -> AsyncIterator[AsyncPublish]:
        """Await the confirm; callers share one channel."""
        queues = partition_names(topic)
        async with rabbitmq_loop.connect(parameters(self.port)) as connection:
            channel = await connection.confirming()

            async def publish(message: Message) -> None:
                await channel.publish(
                    queues[partition_of(message.key)], key=message.key, value=message.value
                )

            yield publish

    def fill(self, queue: str, jobs: Iterable[Message], *, durability: str) -> None:  # noqa: ARG002 - always the same
        """Declare one durable queue."""
        with self._connect() as connection:
            connection.channel().queue_declare(queue, durable=True)
        PublishAll(parameters(self.port), ((queue, key, value) for key, value in jobs)).run()

    def left(self, queue: str) -> int:
        """Ask the queue, once it has taken back what was sent ahead to the workers."""
        with self._connect() as connection:
            channel = connection.channel()
            found = channel.queue_declare(queue, passive=True).method
            for _ in range(LOOKS_MAX):
                if not found.consumer_count:
                    break
                time.sleep(LOOK_SECONDS)
                found = channel.queue_declare(queue, passive=True).method
            return int(found.message_count)

    def remove(self, queue: str) -> None:
        """Remove the queue."""
        with self._connect() as connection:
            connection.channel().queue_delete(queue)

    @contextmanager
    def workers(self, queue: str, *, count: int) -> Iterator[list[Take]]:
        """One connection to a thread."""
        with ExitStack() as stack:
            yield [_taker(stack.enter_context(self._connect()), queue) for _ in range(count)]

    @asynccontextmanager
    async def workers_async(self, queue: str, *, count: int) -> AsyncIterator[list[AsyncTake]]:
        """One channel to a task, all of one connection."""
        async with rabbitmq_loop.connect(parameters(self.port)) as connection:
            yield [(await connection.consuming(queue)).take for _ in range(count)]

    def _connect(self) -> Any:  # noqa: ANN401 - as above
        return pika.BlockingConnection(parameters(self.port))


def _taker(connection: Any, queue: str) -> Take:  # noqa: ANN401 - as above
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    jobs = channel.consume(queue)

    def take() -> None:
        method, _, _ = next(jobs)
        channel.basic_ack(method.delivery_tag)

    return take
