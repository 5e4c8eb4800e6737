"""Kafka, a single KRaft node, with confluent-kafka: idempotent, acks=all, linger 5 ms."""

import base64
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.child import LOOPBACK, Child, free_port
from benchmarks.messages import Message
from benchmarks.pace import Pace
from benchmarks.peers.kafka_jars import KAFKA_VERSION, class_path
from benchmarks.peers.peer import Client, Peer, age_seconds, program, stamped

POLL_EVERY_MESSAGES = 1000
CONSUME_MESSAGES = 10_000
SECONDS_MAX = 60.0
LOG_ERRORS = 3
HEAP = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaClient(Client):
    """Topics are topics, and librdkafka does the work outside Python."""

    replicas: int = 1

    def create(self, topic: str, *, partitions: int) -> None:
        """Make the topic and wait until it is there."""
        admin = self._admin()
        admin.create_topics([NewTopic(topic, partitions, self.replicas)])[topic].result(SECONDS_MAX)

    def delete(self, topic: str) -> None:
        """Remove the topic."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(SECONDS_MAX)

    def count(self, topic: str) -> int:
        """Add up the high watermarks."""
        consumer = self._consumer()
        try:
            marks = [
                consumer.get_watermark_offsets(partition, timeout=SECONDS_MAX)
                for partition in self._partitions(consumer, topic)
            ]
            return sum(int(high) - int(low) for low, high in marks)
        finally:
            consumer.close()

    def publish(self, topic: str, messages: Iterable[Message]) -> float:
        """Produce, making room when the client's queue is full, and flush."""
        failed: list[object] = []
        producer = self._producer(linger_ms=5, failed=failed)
        producer.list_topics(topic, timeout=SECONDS_MAX)
        produce = producer.produce
        pending = 0
        start = time.perf_counter()
        for key, value in messages:
            try:
                produce(topic, value, key)
            except BufferError:
                producer.poll(0.05)
                produce(topic, value, key)
            pending += 1
            if pending == POLL_EVERY_MESSAGES:
                producer.poll(0)
                pending = 0
        left = producer.flush(SECONDS_MAX)
        seconds = time.perf_counter() - start
        if left or failed:
            raise ConnectionError(f"{left} messages not delivered, {len(failed)} refused")
        return seconds

    def read(self, topic: str, *, count: int) -> float:
        """Consume every partition from its beginning."""
        read = size = 0
        consumer = self._consumer()
        try:
            partitions = self._partitions(consumer, topic)
            deadline = time.monotonic() + SECONDS_MAX
            start = time.perf_counter()
            consumer.assign(partitions)
            while read < count and time.monotonic() < deadline:
                messages = consumer.consume(CONSUME_MESSAGES, timeout=0.05)
                for message in messages:
                    size += len(message.value())
                read += len(messages)
            seconds = time.perf_counter() - start
        finally:
            consumer.close()
        if read < count:
            raise TimeoutError(f"read {read} of {count} messages")
        return seconds

    def publish_each(self, topic: str, pace: Pace, *, value_bytes: int) -> list[float]:
        """Produce without linger and flush."""
        failed: list[object] = []
        producer = self._producer(linger_ms=0, failed=failed)
        producer.list_topics(topic, timeout=SECONDS_MAX)
        latencies = []
        for _ in pace.ticks():
            start = time.perf_counter()
            producer.produce(topic, stamped(value_bytes), b"key", partition=0)
            producer.flush(SECONDS_MAX)
            latencies.append(time.perf_counter() - start)
        if failed:
            raise ConnectionError(f"{len(failed)} messages refused")
        return latencies

    def follow(self, topic: str, *, count: int, ready: Callable[[], None]) -> list[float]:
        """Consume one partition, without waiting for more to a fetch."""
        ages: list[float] = []
        consumer = self._consumer()
        try:
            consumer.assign(self._partitions(consumer, topic))
            consumer.consume(1, timeout=1.0)
            ready()
            deadline = time.monotonic() + SECONDS_MAX
            while len(ages) < count and time.monotonic() < deadline:
                message = consumer.poll(0.1)
                if message is not None:
                    ages.append(age_seconds(message.value()))
        finally:
            consumer.close()
        return ages

    def _settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": f"{LOOPBACK}:{self.port}", "log_level": LOG_ERRORS}

    def _admin(self) -> Any:  # noqa: ANN401 - confluent-kafka may be absent
        return AdminClient(self._settings())

    def _producer(self, *, linger_ms: int, failed: list[object]) -> Any:  # noqa: ANN401 - as above
        return Producer(
            {
                **self._settings(),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "batch.size": 1_000_000,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _message: failed.append(error),
            }
        )

    def _consumer(self) -> Any:  # noqa: ANN401 - as above
        return Consumer(
            {
                **self._settings(),
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "fetch.message.max.bytes": 4_000_000,
                "queued.min.messages": 1_000_000,
            }
        )

    def _partitions(self, consumer: Any, topic: str) -> list[Any]:  # noqa: ANN401 - as above
        found = consumer.list_topics(topic, timeout=SECONDS_MAX).topics[topic]
        return [TopicPartition(topic, number, OFFSET_BEGINNING) for number in found.partitions]


class Kafka(Peer):
    """One node that is broker and controller."""

    name: ClassVar[str] = "kafka"
    durability: ClassVar[str] = "written to the page cache (acks=all, one node, default flush)"
    partitioned: ClassVar[bool] = True
    settles_messages: ClassVar[bool] = False

    def start(self) -> None:
        """Format the directory and start the node."""
        java = program("java", package="default-jre-headless")
        jars = class_path()
        self._port, controller_port = free_port(), free_port()
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = self._directory / "server.properties"
        settings.write_text(
            "process.roles=broker,controller\n"
            "node.id=1\n"
            f"listeners=PLAINTEXT://{LOOPBACK}:{self._port},"
            f"CONTROLLER://{LOOPBACK}:{controller_port}\n"
            "controller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@{LOOPBACK}:{controller_port}\n"
            f"log.dirs={self._directory / 'logs'}\n"
            "offsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\n"
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_storage = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}"]
        subprocess.run(
            [java, "-cp", jars, *format_storage, "--config", str(settings)],
            check=True,
            capture_output=True,
            timeout=SECONDS_MAX,
        )
        child = Child(
            [java, *HEAP, "-cp", jars, "kafka.Kafka", str(settings)], directory=self._directory
        )
        self._children.append(child)
        child.wait_port(self._port)

    def client(self) -> KafkaClient:
        """Return a client of this node."""
        return KafkaClient(port=self._port)

    def version(self) -> str:
        """Name the jars and the client."""
        return f"Kafka {KAFKA_VERSION}, confluent-kafka {version('confluent-kafka')}"
