"""RabbitMQ with pika: durable queues, persistent messages, publisher confirms by a window."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar

import pika
from pika.exceptions import ChannelClosedByBroker

from benchmarks.child import LOOPBACK, Child, free_port
from benchmarks.messages import Message
from benchmarks.pace import Pace
from benchmarks.peers.peer import (
    Client,
    Peer,
    age_seconds,
    partition_names,
    partition_of,
    program,
    stamped,
)
from benchmarks.peers.rabbitmq_unbatched import PERSISTENT, RabbitUnbatched, parameters
from benchmarks.peers.rabbitmq_window import Consume, Publish

PREFETCH = 1000
SERVER_FOLDER = "/usr/lib/rabbitmq/bin"
"""The server itself; the program on the path only switches to its own user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitClient(Client):
    """A topic is one durable queue per partition, chosen by the key."""

    def create(self, topic: str, *, partitions: int) -> None:  # noqa: ARG002 - always three
        """Declare the queues."""
        with self._connect() as connection:
            channel = connection.channel()
            for queue in partition_names(topic):
                channel.queue_declare(queue, durable=True)

    def delete(self, topic: str) -> None:
        """Remove the queues."""
        with self._connect() as connection:
            channel = connection.channel()
            for queue in partition_names(topic):
                channel.queue_delete(queue)

    def count(self, topic: str) -> int:
        """Add up what waits in the queues."""
        with self._connect() as connection, suppress(ChannelClosedByBroker):
            channel = connection.channel()
            found = [channel.queue_declare(queue, passive=True) for queue in partition_names(topic)]
            return sum(int(queue.method.message_count) for queue in found)
        return 0

    def publish(self, topic: str, messages: Iterable[Message]) -> float:
        """Publish with confirms, several of them in flight."""
        queues = partition_names(topic)
        routed = ((queues[partition_of(key)], key, value) for key, value in messages)
        return Publish(parameters(self.port), routed).run()

    def read(self, topic: str, *, count: int) -> float:
        """Consume all queues, acknowledged by being sent."""
        return Consume(parameters(self.port), partition_names(topic), count=count).run()

    def consume(self, topic: str, *, count: int) -> float:
        """Consume all queues and ack each message."""
        return Consume(
            parameters(self.port), partition_names(topic), count=count, prefetch=PREFETCH
        ).run()

    def publish_each(self, topic: str, pace: Pace, *, value_bytes: int) -> list[float]:
        """Publish and wait for the confirm."""
        queue = partition_names(topic)[0]
        latencies = []
        with self._connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for _ in pace.ticks():
                start = time.perf_counter()
                channel.basic_publish("", queue, stamped(value_bytes), PERSISTENT)
                latencies.append(time.perf_counter() - start)
        return latencies

    def follow(self, topic: str, *, count: int, ready: Callable[[], None]) -> list[float]:
        """Consume from before the first message."""
        ages: list[float] = []
        with self._connect() as connection:
            channel = connection.channel()

            def receive(_channel: object, _method: object, _header: object, body: bytes) -> None:
                ages.append(age_seconds(body))
                if len(ages) == count:
                    channel.stop_consuming()

            channel.basic_consume(partition_names(topic)[0], receive, auto_ack=True)
            ready()
            channel.start_consuming()
        return ages

    def _connect(self) -> Any:  # noqa: ANN401 - pika ships no types
        return pika.BlockingConnection(parameters(self.port))


class RabbitMq(Peer):
    """A RabbitMQ node with a port mapper of its own."""

    name: ClassVar[str] = "rabbitmq"
    durability: ClassVar[str] = "confirmed after it was written to disk (persistent, durable)"
    load_share: ClassVar[float] = 0.02

    def start(self) -> None:
        """Start the port mapper and the node; both listen on loopback only."""
        server = program("rabbitmq-server", package="rabbitmq-server", folder=SERVER_FOLDER)
        mapper = program("epmd", package="erlang-base")
        self._port, mapper_port, distribution_port = free_port(), free_port(), free_port()
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = self._directory / "rabbitmq.conf"
        settings.write_text(
            f"listeners.tcp.1 = {LOOPBACK}:{self._port}\n"
            "disk_free_limit.absolute = 50MB\n"
            "vm_memory_high_watermark.relative = 0.6\n"
        )
        plugins = self._directory / "enabled_plugins"
        plugins.write_text("[].\n")
        environment = {
            "HOME": str(self._directory),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(mapper_port),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_CONFIG_FILE": str(settings),
            "RABBITMQ_CONF_ENV_FILE": str(self._directory / "none.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(self._directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self._directory / "log"),
            "RABBITMQ_PID_FILE": str(self._directory / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none"
            ),
        }
        for argv, port in (
            ([mapper, "-address", LOOPBACK, "-port", str(mapper_port)], mapper_port),
            ([server], self._port),
        ):
            child = Child(argv, directory=self._directory, environment=environment)
            self._children.append(child)
            child.wait_port(port)

    def client(self) -> RabbitClient:
        """Return a client of this node."""
        return RabbitClient(port=self._port)

    def unbatched(self) -> RabbitUnbatched:
        """Return a client that waits for each confirm."""
        return RabbitUnbatched(port=self._port)

    def version(self) -> str:
        """Ask the node, and name the client."""
        with pika.BlockingConnection(pika.ConnectionParameters(LOOPBACK, self._port)) as connection:
            properties: Any = connection._impl.server_properties  # noqa: SLF001 - no public name
        return f"RabbitMQ {properties['version']}, pika {version('pika')}"
