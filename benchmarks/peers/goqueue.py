"""GoQueue itself: a broker process of this checkout and the SDK, fsync before every ack."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

import goqueue
import goqueue.aio
from benchmarks.child import LOOPBACK, Child, free_port
from benchmarks.messages import Message
from benchmarks.pace import Pace
from benchmarks.peers.goqueue_unbatched import GoQueueUnbatched
from benchmarks.peers.peer import Client, Peer, age_seconds, stamped
from benchmarks.results import GOQUEUE

LINGER_MS = 5
PREFETCH_MESSAGES = 10_000
KEYED_PREFETCH_MESSAGES = 3_400


@dataclass(frozen=True, slots=True, kw_only=True)
class GoQueueClient(Client):
    """The SDK on the native port, and the address of HTTP."""

    http_port: int

    @property
    def address(self) -> str:
        """Return where the native protocol is spoken."""
        return f"{LOOPBACK}:{self.port}"

    def create(self, topic: str, *, partitions: int) -> None:
        """Make a topic with the default durability, fsync before ack."""
        with goqueue.connect(self.address) as client:
            client.create_topic(topic, partitions=partitions)

    def delete(self, topic: str) -> None:
        """Remove the topic and its files."""
        with goqueue.connect(self.address) as client:
            client.delete_topic(topic)

    def count(self, topic: str) -> int:
        """Count the rows of every batch."""
        with goqueue.connect(self.address) as client:
            batches = client.read_batches(topic, start="earliest", end="latest")
            return sum(int(batch.num_rows) for batch in batches)

    def publish(self, topic: str, messages: Iterable[Message]) -> float:
        """Call ``send`` for each message, then flush."""
        with goqueue.connect(self.address) as client:
            producer = client.producer(topic, linger_ms=LINGER_MS)
            send = producer.send
            start = time.perf_counter()
            for key, value in messages:
                send(value, key=key)
            producer.flush()
            seconds = time.perf_counter() - start
            producer.close()
        return seconds

    def read(self, topic: str, *, count: int) -> float:
        """Iterate over message objects, doing with each what is done with those of the peers."""
        size, message = 0, None
        with goqueue.connect(self.address) as client:
            start = time.perf_counter()
            for message in client.read(topic, start="earliest", end="latest"):
                size += len(message.value or b"")
            seconds = time.perf_counter() - start
        each = len(message.value or b"") if message is not None else 0
        assert size == count * each > 0, f"read {size} bytes, not {count} messages of {each}"
        return seconds

    def read_batches(self, topic: str, *, count: int) -> float:
        """Iterate over Arrow record batches."""
        read = size = 0
        with goqueue.connect(self.address) as client:
            start = time.perf_counter()
            for batch in client.read_batches(topic, start="earliest", end="latest"):
                size += batch.column("value").nbytes
                read += batch.num_rows
            seconds = time.perf_counter() - start
        assert read == count, f"read {read} of {count} messages"
        return seconds

    def consume(self, topic: str, *, count: int) -> float:
        """Iterate over a consumer; the clock stops when every ack is durable."""
        return self._consume(topic, count, ordering="none")

    def consume_by_key(self, topic: str, *, count: int) -> float:
        """Do the same with the messages of a key one after the other."""
        # The more is fetched ahead, the longer a busy key waits for its next message.
        return self._consume(topic, count, ordering="key", prefetch=KEYED_PREFETCH_MESSAGES)

    def consume_as_by_key(self, topic: str, *, count: int) -> float:
        """Do the same without an order."""
        return self._consume(topic, count, ordering="none", prefetch=KEYED_PREFETCH_MESSAGES)

    def _consume(
        self, topic: str, count: int, *, ordering: str, prefetch: int = PREFETCH_MESSAGES
    ) -> float:
        size = left = 0
        with goqueue.connect(self.address) as client:
            consumer = client.consumer(
                topic,
                [topic],
                ordering=ordering,
                prefetch=prefetch,
                max_in_flight=2 * prefetch,
            )
            left = count
            start = time.perf_counter()
            for message in consumer:
                size += len(message.value or b"")
                message.ack()
                left -= 1
                if not left:
                    break
            consumer.flush()
            seconds = time.perf_counter() - start
            lag = sum(part.lag for part in client.group_progress(topic))
            consumer.close()
            client.delete_group(topic)
        assert lag == 0, f"{lag} of {count} messages are not acked"
        return seconds

    def publish_each(self, topic: str, pace: Pace, *, value_bytes: int) -> list[float]:
        """Publish and wait for the place."""
        latencies = []
        with goqueue.connect(self.address) as client:
            producer = client.producer(topic, linger_ms=0)
            for _ in pace.ticks():
                start = time.perf_counter()
                producer.publish(stamped(value_bytes), key=b"key")
                latencies.append(time.perf_counter() - start)
            producer.close()
        return latencies

    def publish_each_async(self, topic: str, pace: Pace, *, value_bytes: int) -> list[float]:
        """Send on schedule by the async SDK, however many acks are still to come."""
        return asyncio.run(self._publish_each_async(topic, pace, value_bytes))

    async def _publish_each_async(self, topic: str, pace: Pace, value_bytes: int) -> list[float]:
        latencies = []
        async with await goqueue.aio.connect(self.address) as client:
            producer = client.producer(topic, linger_ms=0)

            async def publish(due: float) -> None:
                await producer.send(stamped(value_bytes), key=b"key")
                latencies.append(time.perf_counter() - due)

            async with asyncio.TaskGroup() as tasks:
                started = time.perf_counter()
                for number in range(pace.count):
                    await asyncio.sleep(max(0.0, pace.delay(number, started=started)))
                    tasks.create_task(publish(time.perf_counter()))
            await producer.close()
        return latencies

    def follow(self, topic: str, *, count: int, ready: Callable[[], None]) -> list[float]:
        """Read on from the end as messages arrive."""
        ages: list[float] = []
        with goqueue.connect(self.address) as client:
            messages = client.read(topic, start="earliest", follow=True)
            ready()
            for message in messages:
                ages.append(age_seconds(message.value or b""))
                if len(ages) == count:
                    break
        return ages


class GoQueue(Peer):
    """A broker started by ``goqueue serve``."""

    name: ClassVar[str] = GOQUEUE
    durability: ClassVar[str] = "fsync before every acknowledgement (group commit, default)"
    partitioned: ClassVar[bool] = True

    def start(self) -> None:
        """Start the broker and return when both ports accept connections."""
        self._port, self._http_port = free_port(), free_port()
        argv = [sys.executable, "-m", "goqueue", "serve", "--data", str(self.data)]
        argv += ["--native", f"{LOOPBACK}:{self._port}", "--http", f"{LOOPBACK}:{self._http_port}"]
        # As one that is installed, whatever this shell says: it finds its modules compiled.
        environment = {"PYTHONDONTWRITEBYTECODE": ""}
        child = Child(argv, directory=self._directory, environment=environment)
        self._children.append(child)
        child.wait_port(self._port)
        child.wait_port(self._http_port)

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self._directory / "data"

    def client(self) -> GoQueueClient:
        """Return a client of this broker."""
        return GoQueueClient(port=self._port, http_port=self._http_port)

    def unbatched(self) -> GoQueueUnbatched:
        """Return a client that handles one message at a time."""
        return GoQueueUnbatched(port=self._port)

    def version(self) -> str:
        """Name the version of this checkout."""
        return f"GoQueue {version('goqueue')}"
