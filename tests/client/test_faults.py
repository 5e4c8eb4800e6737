"""A disk that is full, slow or broken, and code of the caller's that raises: the producer copes."""

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import goqueue
import goqueue.aio
from goqueue.base.errors import (
    BufferFullError,
    GoQueueError,
    InvalidRequestError,
    StorageFailedError,
)
from goqueue.client.protocol.positions import microseconds_of
from goqueue.testing.disk import MemoryDisk
from tests.transport.native.running import Running

TOPIC = "orders"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def server(disk: MemoryDisk) -> Iterator[Running]:
    with Running(disk) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[goqueue.Client]:
    with goqueue.connect(server.address, timeout=60) as connected:
        connected.create_topic(TOPIC, partitions=1)
        yield connected


class Gate:
    """Holds every sync of a disk until it is opened."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._open = threading.Event()
        self.reached = threading.Event()
        disk.delay_sync(self._wait)

    def _wait(self, path: str) -> None:
        if path.startswith("logs/"):
            self.reached.set()
            assert self._open.wait(60)

    def open(self) -> None:
        self._open.set()
        self._disk.delay_sync(None)


@pytest.fixture
def gate(disk: MemoryDisk, client: goqueue.Client) -> Iterator[Gate]:
    """A disk so slow that nothing is acked before the gate is opened."""
    del client
    held = Gate(disk)
    yield held
    held.open()


def test_a_full_buffer_says_so_after_a_while(client: goqueue.Client, gate: Gate) -> None:
    """P11: behind a slow disk the producer pushes back instead of growing; nothing is lost."""
    producer = client.producer(
        TOPIC, linger_ms=0, batch_bytes=1_000, buffer_bytes=20_000, block_ms_max=200
    )
    futures: list[goqueue.SendFuture] = []
    with pytest.raises(BufferFullError, match="20000 bytes"):
        futures.extend(producer.send(bytes(100)) for _ in range(100_000))

    assert len(futures) < 1_000
    gate.open()
    assert [future.result(60).offset for future in futures] == list(range(len(futures)))


def test_send_goes_on_when_there_is_room(client: goqueue.Client, gate: Gate) -> None:
    """A sender that waits for room is woken as soon as the broker has caught up."""
    producer = client.producer(TOPIC, linger_ms=0, batch_bytes=1_000, buffer_bytes=20_000)
    sent = threading.Event()

    def send() -> None:
        for _ in range(2_000):
            producer.send(bytes(100))
        sent.set()

    thread = threading.Thread(target=send)
    thread.start()
    assert gate.reached.wait(60)
    assert not sent.wait(0.1)
    gate.open()
    assert sent.wait(60)
    thread.join()
    producer.flush(60)

    assert client.offsets(TOPIC) == {0: 2_000}


def test_a_small_buffer_bounds_what_is_gathered_too(client: goqueue.Client, gate: Gate) -> None:
    """The limit holds for messages that wait to be sent as for those under way."""
    producer = client.producer(TOPIC, buffer_bytes=5_000, block_ms_max=100)
    accepted: list[goqueue.SendFuture] = []
    with pytest.raises(BufferFullError):
        accepted.extend(producer.send(bytes(100)) for _ in range(100_000))

    assert len(accepted) * 100 < 20_000
    gate.open()


def test_in_a_loop_a_full_buffer_is_drained(server: Running, disk: MemoryDisk) -> None:
    """In an event loop nobody may block: send raises, and drain waits without burning time."""

    async def scenario() -> tuple[int, float]:
        async with await goqueue.aio.connect(server.address) as client:
            await client.create_topic(TOPIC, partitions=1)
            producer = client.producer(TOPIC, linger_ms=0, batch_bytes=1_000, buffer_bytes=20_000)
            await producer.drain()
            gate = Gate(disk)
            accepted: list[goqueue.SendFuture] = []
            with pytest.raises(BufferFullError):
                accepted.extend(producer.send(bytes(100)) for _ in range(100_000))
            asyncio.get_running_loop().call_later(0.5, gate.open)
            before = time.thread_time()
            await producer.drain()
            spent = time.thread_time() - before
            producer.send(b"room again")
            await producer.flush()
            offsets = await client.offsets(TOPIC)
            return offsets[0] - len(accepted), spent

    more, spent = asyncio.run(scenario())

    assert more == 1
    assert spent < 0.2


def test_a_full_disk_is_waited_for(disk: MemoryDisk, client: goqueue.Client) -> None:
    """A retryable refusal is retried; when there is room the message is published, once."""
    producer = client.producer(TOPIC, linger_ms=0)
    producer.send(b"before").result(60)
    disk.fill_up()
    future = producer.send(b"while full")
    assert not future.done()
    disk.make_room()

    assert future.result(60).offset == 1
    assert [message.value for message in client.read(TOPIC)] == [b"before", b"while full"]


def test_a_disk_too_full_for_a_new_producer_is_waited_for(
    disk: MemoryDisk, client: goqueue.Client
) -> None:
    """A broker that cannot give out an identity just now does not end the producer."""
    disk.fill_up()
    producer = client.producer(TOPIC, linger_ms=0)
    future = producer.send(b"patient")
    with pytest.raises(GoQueueError):
        future.result(0.3)
    disk.make_room()

    assert future.result(60).offset == 0


def test_a_broken_disk_fails_the_future_and_calls_back(
    disk: MemoryDisk, client: goqueue.Client
) -> None:
    """A sync that fails is no ack; the caller hears of it in both places."""
    heard: list[tuple[GoQueueError, int]] = []
    producer = client.producer(
        TOPIC, linger_ms=0, on_error=lambda error, count: heard.append((error, count))
    )
    producer.send(b"fine").result(60)
    disk.fail_sync("logs/*.log")
    future = producer.send(b"lost")

    with pytest.raises(StorageFailedError):
        future.result(60)
    assert [(type(error), count) for error, count in heard] == [(StorageFailedError, 1)]
    assert [message.value for message in client.read(TOPIC)] == [b"fine"]


def test_a_callback_that_raises_stops_nobody(
    disk: MemoryDisk, client: goqueue.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller's own faults are reported as such and cost no other message its outcome."""

    def fault(*_: object) -> None:
        raise RuntimeError("mine")

    producer = client.producer(TOPIC, on_error=fault)
    futures = [producer.send(b"%d" % number) for number in range(10)]
    called: list[int] = []
    for future in futures:
        future.add_done_callback(fault)
        future.add_done_callback(lambda done: called.append(done.result(0).offset))
    producer.flush(60)
    disk.fail_sync("logs/*.log")
    failed = producer.send(b"lost")

    assert isinstance(failed.exception(60), StorageFailedError)
    assert called == list(range(10))
    assert isinstance(producer.send(b"after").exception(60), StorageFailedError)
    assert "a callback raised" in caplog.text


def test_a_future_calls_back_at_once_when_it_is_done(client: goqueue.Client) -> None:
    """Whoever asks late is called back, too."""
    future = client.producer(TOPIC).send(b"x")
    place = future.result(60)
    called: list[object] = []
    future.add_done_callback(called.append)

    assert called == [future]
    assert future.done()
    assert future.exception(0) is None
    assert future.result(0) == place


def test_a_callback_may_send(client: goqueue.Client) -> None:
    """One message may lead to the next from within its callback."""
    producer = client.producer(TOPIC, linger_ms=0)
    done = threading.Event()

    def send_next(_: object) -> None:
        producer.send(b"second").add_done_callback(lambda _: done.set())

    producer.send(b"first").add_done_callback(send_next)

    assert done.wait(60)
    assert [message.value for message in client.read(TOPIC)] == [b"first", b"second"]


@pytest.mark.parametrize(
    "timestamp",
    [
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime.now(UTC) + timedelta(days=2),
        datetime.max.replace(tzinfo=UTC),
    ],
    ids=["before 1970", "days ahead", "the end of time"],
)
def test_an_impossible_time_is_refused_where_it_is_sent(
    client: goqueue.Client, timestamp: datetime
) -> None:
    """A message the broker would refuse is refused at once, and takes no neighbour with it."""
    producer = client.producer(TOPIC)
    good = [producer.send(b"good") for _ in range(5)]
    with pytest.raises(InvalidRequestError, match="timestamp"):
        producer.send(b"bad", timestamp=timestamp)

    assert [future.result(60).offset for future in good] == list(range(5))


@given(st.integers(0, 4 * 10**15))
def test_a_time_is_exact_to_the_microsecond(time_us: int) -> None:
    """What a datetime says is what is stored; no float comes between."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)

    assert microseconds_of(moment) == time_us


def test_very_many_repeats_are_recognised(client: goqueue.Client) -> None:
    """P3: however many messages with a dedup id are sent again at once, none is stored twice."""
    client.create_topic("once", partitions=1, dedup_window_ms="1h")
    places = []
    for _ in range(2):
        producer = client.producer("once", batch_bytes=8 << 20)
        futures = [producer.send(b"%d" % n, dedup_id=b"id-%d" % n) for n in range(10_000)]
        producer.flush(60)
        places.append([future.result(1).offset for future in futures])

    assert places[0] == places[1] == list(range(10_000))
    assert client.offsets("once") == {0: 10_000}
