"""A bad network, a broker that restarts: every message is published once, or its future says no."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import goqueue
from goqueue.base.errors import ClosedError, ConnectionLostError, DeadlineExceededError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.client.producer import gatherer as producer_module
from goqueue.client.producer.pile import Pile
from goqueue.client.protocol import outbox
from goqueue.client.protocol.outbox import Batch
from goqueue.client.protocol.outcome import Part
from goqueue.testing.log_checker import LogChecker
from goqueue.wire.packet import Operation
from tests.client.proxy import Fate, Proxy
from tests.transport.native.running import Running

TOPIC = "orders"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path / "data") as server:
        yield server


@pytest.fixture
def proxy(running: Running) -> Iterator[Proxy]:
    with Proxy(running.address) as between:
        yield between


@pytest.fixture
def client(proxy: Proxy) -> Iterator[goqueue.Client]:
    """A client behind the bad network, with a topic of one partition."""
    with goqueue.connect(proxy.address, timeout=60) as connected:
        connected.create_topic(TOPIC, partitions=1)
        yield connected


@pytest.fixture
def seconds_of(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Take the seconds that some batches have, by their number, whatever the others have."""
    seconds: dict[int, float] = {}

    class Timed(Batch[Pile]):
        __slots__ = ()

        def __init__(self, pile: Pile, part: Part, *, number: int, deadline: float) -> None:
            if number in seconds:
                deadline = asyncio.get_running_loop().time() + seconds[number]
            super().__init__(pile, part, number=number, deadline=deadline)

    monkeypatch.setattr(producer_module, "Batch", Timed)
    return seconds


def stored(running: Running) -> list[bytes | None]:
    """Return what is in the log, read over a good network."""
    with goqueue.connect(running.address) as reader:
        return [message.value for message in reader.read(TOPIC)]


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY, Fate.DELAY])
@pytest.mark.parametrize("operation", [Operation.INIT_PRODUCER, Operation.PRODUCE])
def test_whatever_is_lost_there_is_one_copy(
    running: Running, proxy: Proxy, client: goqueue.Client, fate: Fate, operation: Operation
) -> None:
    """P3: a retry on another connection returns the original offset and writes nothing."""
    producer = client.producer(TOPIC, linger_ms=0)
    proxy.plan(operation, fate)
    places = [producer.send(b"%d" % number).result(60) for number in range(3)]
    answered = 3 + (fate is Fate.LOSE_REPLY and operation is Operation.PRODUCE)
    proxy.wait_for(Operation.PRODUCE, answered)
    proxy.release()
    if fate is Fate.DELAY:
        proxy.wait_for(operation, 4 if operation is Operation.PRODUCE else 2)

    assert [place.offset for place in places] == [0, 1, 2]
    assert stored(running) == [b"0", b"1", b"2"]
    is_repeat = fate is Fate.LOSE_REPLY and operation is Operation.PRODUCE
    assert [place.is_duplicate for place in places] == [is_repeat, False, False]


@pytest.mark.parametrize("seed", range(3))
def test_a_network_that_loses_at_random_loses_no_message(
    running: Running, proxy: Proxy, client: goqueue.Client, seed: int
) -> None:
    """With many requests under way, every message is there once and in the order it was sent."""
    dice = Random(seed)
    fates = [Fate.PASS] * 6 + [Fate.LOSE_REQUEST, Fate.LOSE_REPLY]
    proxy.plan(Operation.PRODUCE, *dice.choices(fates, k=40))
    proxy.plan(Operation.INIT_PRODUCER, *dice.choices(fates, k=6))
    client.create_topic("many", partitions=3)
    producer = client.producer("many", linger_ms=0, batch_bytes=2_000)
    futures = []
    for number in range(4_000):
        futures.append((b"%d" % number, producer.send(b"%d" % number, key=b"%d" % (number % 40))))
        if number % 100 == 0:
            futures[-1][1].result(60)
    producer.flush(60)

    checker = LogChecker()
    for value, future in futures:
        place = future.result(1)
        partition = TopicPartition(TopicName("many"), PartitionId(place.partition))
        checker.sent(partition, value, producer="one")
        checker.acked(partition, place.offset, value)
    read_all(checker, running.address, "many", 3)
    checker.check()


def read_all(checker: LogChecker, address: str, topic: str, partitions: int) -> None:
    """Tell the checker what is in every partition."""
    with goqueue.connect(address) as reader:
        for number in range(partitions):
            found = [(m.offset, m.value or b"") for m in reader.read(topic, partitions=[number])]
            end = reader.offsets(topic)[number]
            partition = TopicPartition(TopicName(topic), PartitionId(number))
            checker.read(partition, found, start_offset=0, end_offset=end)


def test_an_early_batch_that_runs_out_of_time_does_not_double_a_later_one(
    running: Running, proxy: Proxy, client: goqueue.Client, seconds_of: dict[int, float]
) -> None:
    """A batch of unknown fate is not numbered anew before the broker said it is not there."""
    producer = client.producer(TOPIC, linger_ms=0)
    producer.send(b"first").result(60)
    proxy.plan(Operation.PRODUCE, Fate.SWALLOW, Fate.SWALLOW)
    seconds_of[2] = 3.0
    early = producer.send(b"early")
    proxy.wait_for(Operation.PRODUCE, 2)
    late = producer.send(b"late")
    proxy.wait_for(Operation.PRODUCE, 3)

    assert isinstance(early.exception(60), DeadlineExceededError)
    assert late.result(60).offset == 2
    assert producer.send(b"last").result(60).offset == 3
    assert stored(running) == [b"first", b"early", b"late", b"last"]


def test_an_early_batch_that_never_arrived_does_not_stop_a_later_one(
    running: Running, proxy: Proxy, client: goqueue.Client, seconds_of: dict[int, float]
) -> None:
    """Where the broker says that nothing is there, the rest is numbered anew and goes out."""
    producer = client.producer(TOPIC, linger_ms=0)
    producer.send(b"first").result(60)
    proxy.is_reachable = False
    proxy.cut()
    seconds_of[2] = 1.0
    early = producer.send(b"early")
    late = [producer.send(b"late-%d" % number) for number in range(3)]

    assert isinstance(early.exception(60), DeadlineExceededError)
    proxy.is_reachable = True
    assert [future.result(60).offset for future in late] == [1, 2, 3]
    assert stored(running) == [b"first", b"late-0", b"late-1", b"late-2"]


def test_a_broker_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, running: Running, proxy: Proxy, client: goqueue.Client
) -> None:
    """A dead connection is left for another one long before the message runs out of time."""
    monkeypatch.setattr(outbox, "ANSWER_SECONDS_MAX", 0.3)
    producer = client.producer(TOPIC, linger_ms=0)
    proxy.plan(Operation.PRODUCE, Fate.SWALLOW, Fate.SWALLOW)

    assert producer.send(b"patient").result(60).is_duplicate
    assert stored(running) == [b"patient"]


def test_what_is_not_acked_in_time_fails_and_so_does_what_comes_later(
    proxy: Proxy, client: goqueue.Client, seconds_of: dict[int, float]
) -> None:
    """P11: a future does not wait forever for a broker that is gone, the next one neither."""
    producer = client.producer(TOPIC, linger_ms=0, delivery_timeout_ms=400)
    # Those that are to arrive do so however slow the machine is.
    seconds_of |= {1: 60, 5: 60}
    producer.send(b"fine").result(60)
    proxy.is_reachable = False
    proxy.cut()

    for number in range(3):
        future = producer.send(b"lost-%d" % number)
        assert isinstance(future.exception(60), DeadlineExceededError)
    proxy.is_reachable = True
    assert producer.send(b"back").result(60).offset == 1


def test_closing_does_not_wait_for_a_broker_that_is_gone(
    proxy: Proxy, client: goqueue.Client
) -> None:
    """What is not sent when the time to close is over fails; nothing hangs."""
    producer = client.producer(TOPIC, linger_ms=0)
    producer.send(b"fine").result(60)
    proxy.is_reachable = False
    proxy.cut()
    futures = [producer.send(b"lost-%d" % number) for number in range(100)]
    with pytest.raises(ClosedError, match="100 messages were not published"):
        producer.close(timeout=0.3)

    assert {type(future.exception(60)) for future in futures} == {ClosedError}
    with pytest.raises(ClosedError):
        producer.send(b"more")


def test_a_reader_goes_on_where_it_was(
    running: Running, proxy: Proxy, client: goqueue.Client
) -> None:
    """A connection lost in the middle costs a reader nothing but time."""
    producer = client.producer(TOPIC)
    for number in range(2_000):
        producer.send(b"%d" % number + bytes(5_000))
    producer.flush(60)
    messages = client.read(TOPIC)
    offsets = []
    for message in messages:
        offsets.append(message.offset)
        if message.offset in {10, 700, 1_500}:
            proxy.cut()

    assert offsets == list(range(2_000))
    assert running.address != proxy.address


def test_a_call_is_made_again_when_its_connection_was_lost(
    proxy: Proxy, client: goqueue.Client
) -> None:
    """What may safely be asked twice is asked twice."""
    proxy.plan(Operation.DESCRIBE_TOPIC, Fate.LOSE_REPLY, Fate.LOSE_REQUEST)

    assert client.describe_topic(TOPIC).name == TOPIC


def test_a_call_that_may_have_been_carried_out_is_not_repeated(
    proxy: Proxy, client: goqueue.Client
) -> None:
    """Who creates a topic hears that the outcome is unknown, not that somebody else was first."""
    proxy.plan(Operation.CREATE_TOPIC, Fate.LOSE_REPLY)
    with pytest.raises(ConnectionLostError):
        client.create_topic("new")

    assert client.describe_topic("new").name == "new"


class Restarts:
    """A broker that comes and goes on one port and one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.server = Running(data_dir)
        self.address = self.server.address

    def restart(self) -> None:
        self.server.close()
        self.server = Running(self._data_dir, listener=self.address)


def test_a_restart_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """P1, P3: a clean restart on the same port is a pause for producer and reader, no more."""
    broker = Restarts(tmp_path / "data")
    checker = LogChecker()
    with goqueue.connect(broker.address) as client:
        client.create_topic(TOPIC, partitions=2)
        producer = client.producer(TOPIC, linger_ms=1)
        followed: list[int] = []
        follower = threading.Thread(
            target=follow, args=(client, followed, 4_000), name="follower", daemon=True
        )
        follower.start()
        futures = []
        for number in range(4_000):
            value = b"%d" % number
            futures.append((value, producer.send(value, key=value)))
            if number % 1_000 == 500:
                broker.restart()
        for value, future in futures:
            place = future.result(60)
            partition = TopicPartition(TopicName(TOPIC), PartitionId(place.partition))
            checker.sent(partition, value, producer="one")
            checker.acked(partition, place.offset, value)
        follower.join(60)
        read_all(checker, broker.address, TOPIC, 2)
    broker.server.close()

    checker.check()
    assert sorted(followed) == list(range(4_000))


def follow(client: goqueue.Client, followed: list[int], count: int) -> None:
    """Read along until so many messages were seen."""
    for message in client.read(TOPIC, follow=True):
        followed.append(int(message.value or b""))
        if len(followed) == count:
            return
