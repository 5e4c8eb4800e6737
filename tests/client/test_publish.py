"""One message at a time, waited for: the same promises as ``send``, without its threads."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import (
    ClosedError,
    DeadlineExceededError,
    GoQueueError,
    InvalidTransactionStateError,
    OverloadedError,
    PartitionNotFoundError,
    SchemaViolationError,
    TooLargeError,
    TopicNotFoundError,
)
from goqueue.base.ids import Epoch, ProducerId, Sequence
from goqueue.base.units import MiB
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.protocol import outbox
from goqueue.client.protocol.positions import microseconds_of
from goqueue.core.record.stamp import ProducerStamp
from goqueue.wire.packet import Operation
from tests.client.proxy import Fate, Proxy

TOPIC = "orders"


@pytest.fixture
def remote(proxy: Proxy) -> Iterator[goqueue.Client]:
    """A client behind a bad network, with a topic of one partition for this test alone."""
    with goqueue.connect(proxy.address, timeout=60) as connected:
        connected.create_topic(TOPIC, partitions=1)
        yield connected
        connected.delete_topic(TOPIC)


def stored(client: goqueue.Client, topic: str = TOPIC) -> list[bytes | None]:
    return [message.value for message in client.read(topic)]


def test_it_returns_the_place(broker: goqueue.Client, orders: str) -> None:
    """Keys go where they go with ``send``; messages without one take turns."""
    producer = broker.producer(orders)
    place = producer.publish(b"one", key=b"k")
    sent = producer.send(b"two", key=b"k").result()
    turns = {producer.publish(b"x").partition for _ in range(3)}

    assert (place.topic, place.durability, place.is_duplicate) == (orders, "fsync", False)
    assert (place.partition, place.offset + 1) == (sent.partition, sent.offset)
    assert turns == {0, 1, 2}


def test_it_comes_behind_what_was_sent(broker: goqueue.Client, orders: str) -> None:
    """However long the producer would have lingered; what is sent afterwards follows."""
    producer = broker.producer(orders, linger_ms=60_000)
    for number in range(5):
        producer.send(b"sent %d" % number, partition=0)
    producer.publish(b"published", partition=0)
    producer.send(b"last", partition=0)
    producer.flush()

    values = [message.value for message in broker.read(orders, partitions=[0])]
    assert values == [*(b"sent %d" % number for number in range(5)), b"published", b"last"]


def test_a_message_has_every_field(broker: goqueue.Client, orders: str) -> None:
    """The same that ``send`` takes, stored in the same way."""
    broker.configure_topic(orders, dedup_window_ms=60_000)
    producer = broker.producer(orders)
    moment = datetime(2024, 5, 6, tzinfo=UTC)
    place = producer.publish(
        None, key=b"", headers={"a": "b"}, priority="high", partition=2, timestamp=moment
    )
    first = producer.publish(b"v", dedup_id="d", partition=1)
    again = producer.publish(b"v", dedup_id="d", partition=1)
    producer.publish(b"later", delay="1h", delay_id="reminder")

    (message,) = broker.read(orders, partitions=[2])
    assert (place.partition, message.key, message.value) == (2, b"", None)
    assert (message.headers, message.timestamp_us) == ({"a": b"b"}, microseconds_of(moment))
    assert message.priority == goqueue.Priority.HIGH
    assert (again.offset, again.is_duplicate) == (first.offset, True)
    assert len(broker.find_delayed(orders, id="reminder")) == 1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"value": bytes(MiB * 17)}, TooLargeError),
        ({"value": b"", "partition": 7}, PartitionNotFoundError),
        ({"value": "text"}, TypeError),
        ({"value": b"", "colour": "red"}, TypeError),
        ({"value": b"", "headers": {"__mine": b""}}, GoQueueError),
    ],
)
def test_what_cannot_be_is_refused(
    broker: goqueue.Client, orders: str, fields: dict[str, object], error: type[Exception]
) -> None:
    """Nothing is written, and the next message goes through."""
    producer = broker.producer(orders)
    with pytest.raises(error):
        producer.publish(**fields)  # type: ignore[arg-type]

    assert producer.publish(b"fine", partition=0).offset == 0


def test_a_misfit_is_refused_with_its_reason(broker: goqueue.Client, orders: str) -> None:
    """Those before and behind it are numbered on."""
    broker.schemas.register(orders, '{"type": "object"}')
    broker.configure_topic(orders, schema_validation="on")
    producer = broker.producer(orders)
    producer.publish(b"{}", partition=0)
    with pytest.raises(SchemaViolationError, match="object"):
        producer.publish(b"5", partition=0)

    assert producer.publish(b"{}", partition=0).offset == 1


def test_many_threads_share_a_producer(client: goqueue.Client, topic: str) -> None:
    """Each message is there once, and each thread's own in its order."""
    producer = client.producer(topic)

    def publish(thread: int) -> None:
        for number in range(50):
            producer.publish(b"%d %d" % (thread, number), partition=0)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(publish, range(8)))

    values = [message.value or b"" for message in client.read(topic)]
    for thread in range(8):
        own = [value.split()[1] for value in values if value.startswith(b"%d " % thread)]
        assert own == [b"%d" % number for number in range(50)]


def test_in_a_loop_it_can_be_awaited(address: str, client: goqueue.Client, topic: str) -> None:
    """The asynchronous producer has the same call; it does not linger."""

    async def publish() -> goqueue.Place:
        async with await goqueue.aio.connect(address) as connected:
            return await connected.producer(topic, linger_ms=60_000).publish(b"v", key=b"k")

    place = asyncio.run(publish())
    assert stored(client, topic) == [b"v"]
    assert place.offset == 0


def test_a_transactional_producer_has_its_transactions(client: goqueue.Client, topic: str) -> None:
    """Outside of one nothing is published, one at a time or not."""
    producer = client.producer(topic, transactional_id="mover")
    with pytest.raises(InvalidTransactionStateError):
        producer.publish(b"loose")


def test_a_closed_producer_says_so(client: goqueue.Client, topic: str) -> None:
    """Before the first message and behind it."""
    for is_used in (False, True):
        producer = client.producer(topic)
        if is_used:
            producer.publish(b"v")
        producer.close()
        with pytest.raises(ClosedError):
            producer.publish(b"late")


def test_a_topic_that_is_gone(client: goqueue.Client, topic: str) -> None:
    """The broker's own word reaches the caller."""
    producer = client.producer(topic)
    producer.publish(b"v")
    client.delete_topic(topic)
    with pytest.raises(TopicNotFoundError):
        producer.publish(b"late")


# A bad network.


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY, Fate.DELAY])
@pytest.mark.parametrize("operation", [Operation.INIT_PRODUCER, Operation.PRODUCE])
def test_whatever_is_lost_there_is_one_copy(
    proxy: Proxy, remote: goqueue.Client, fate: Fate, operation: Operation
) -> None:
    """P3: a retry on another connection returns the original offset and writes nothing."""
    producer = remote.producer(TOPIC)
    proxy.plan(operation, fate)
    places = [producer.publish(b"%d" % number) for number in range(3)]
    is_produce = operation is Operation.PRODUCE
    is_repeat = fate is Fate.LOSE_REPLY and is_produce
    proxy.wait_for(Operation.PRODUCE, 3 + is_repeat)
    proxy.release()
    if fate is Fate.DELAY:
        proxy.wait_for(operation, 4 if is_produce else 2)

    assert [place.offset for place in places] == [0, 1, 2]
    assert [place.is_duplicate for place in places] == [is_repeat, False, False]
    assert stored(remote) == [b"0", b"1", b"2"]


def test_no_answer_in_time_is_a_doubt_that_harms_no_other(
    proxy: Proxy, remote: goqueue.Client
) -> None:
    """The caller hears that it may be published, and the next message is not taken for it."""
    producer = remote.producer(TOPIC, delivery_timeout_ms=3_000)
    producer.publish(b"first")
    proxy.plan(Operation.PRODUCE, *[Fate.SWALLOW] * 9)
    with pytest.raises(DeadlineExceededError, match="it may be published"):
        producer.publish(b"doubtful")
    proxy.plans_end()
    place = producer.publish(b"next")

    assert stored(remote) == [b"first", b"doubtful", b"next"]
    assert (place.offset, place.is_duplicate) == (2, False)


def test_a_producer_the_broker_does_not_know_begins_anew(
    remote: goqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restore from a backup that is older than the producer."""
    producer = remote.producer(TOPIC)
    producer.publish(b"first")
    known = ProducerStamp

    def stranger(_: ProducerId, epoch: Epoch, sequence: Sequence) -> ProducerStamp:
        monkeypatch.setattr(outbox, "ProducerStamp", known)
        return known(ProducerId(1_000_000), epoch, sequence)

    monkeypatch.setattr(outbox, "ProducerStamp", stranger)
    producer.publish(b"second")
    producer.publish(b"third")

    assert stored(remote) == [b"first", b"second", b"third"]


def test_an_interrupted_publish_leaves_no_answer_behind(
    remote: goqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the answer is awaited: the next message gets its own."""
    producer = remote.producer(TOPIC)
    producer.publish(b"first")
    receive = BlockingLink.receive_any

    def interrupted(_: BlockingLink) -> object:
        monkeypatch.setattr(BlockingLink, "receive_any", receive)
        raise KeyboardInterrupt

    monkeypatch.setattr(BlockingLink, "receive_any", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.publish(b"interrupted")
    place = producer.publish(b"next")

    values = stored(remote)
    assert values[place.offset] == b"next"
    assert values.count(b"next") == values.count(b"first") == 1


def test_closing_waits_for_a_publish_under_way(proxy: Proxy, remote: goqueue.Client) -> None:
    """For as long as it may; then that publish fails, and nothing hangs."""
    producer = remote.producer(TOPIC)
    producer.publish(b"first")
    proxy.plan(Operation.PRODUCE, Fate.SWALLOW)
    outcomes: list[GoQueueError] = []

    def publish() -> None:
        try:
            producer.publish(b"stuck")
        except GoQueueError as error:
            outcomes.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    proxy.wait_for(Operation.PRODUCE, 2)
    producer.close(timeout=0.2)
    thread.join(20)

    assert not thread.is_alive()
    assert [type(one) for one in outcomes] == [DeadlineExceededError]


def test_it_does_not_wait_for_others_to_stop_sending(client: goqueue.Client, topic: str) -> None:
    """Behind what was sent before, not behind all that other threads go on to send."""
    producer = client.producer(topic)
    is_over = threading.Event()

    def send_on() -> None:
        while not is_over.is_set():
            producer.send(bytes(1_000), key=b"k")

    others = [threading.Thread(target=send_on) for _ in range(2)]
    for thread in others:
        thread.start()
    published = threading.Thread(target=producer.publish, args=(b"v",), daemon=True)
    published.start()
    published.join(30)
    is_done = not published.is_alive()
    is_over.set()
    for thread in (*others, published):
        thread.join()

    assert is_done


def test_time_that_is_over_after_a_pause_is_told(
    proxy: Proxy, remote: goqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine may be so busy that a short pause takes all the time there was."""
    producer = remote.producer(TOPIC, delivery_timeout_ms=20_000)
    producer.publish(b"first")
    proxy.plan(Operation.PRODUCE, Fate.LOSE_REQUEST, Fate.LOSE_REQUEST)
    now = time.monotonic
    late_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now() + late_s[0])
    monkeypatch.setattr(time, "sleep", lambda _: late_s.__setitem__(0, 60.0))
    with pytest.raises(DeadlineExceededError):
        producer.publish(b"late")


def test_a_doubt_stays_whatever_is_said_later(
    proxy: Proxy, remote: goqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is too busy to look does not say that the message is not there."""
    producer = remote.producer(TOPIC, delivery_timeout_ms=3_000)
    producer.publish(b"first")
    proxy.plan(Operation.PRODUCE, Fate.LOSE_REPLY)
    send, asked = BlockingLink.send, []

    def busy(link: BlockingLink, operation: Operation, *rest: object) -> object:
        asked.append(operation)
        if asked.count(Operation.PRODUCE) > 1:
            raise OverloadedError("busy")
        return send(link, operation, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(BlockingLink, "send", busy)
    with pytest.raises(DeadlineExceededError, match="it may be published"):
        producer.publish(b"doubtful")


def test_the_first_message_has_no_more_time_than_the_others(
    remote: goqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connecting and being introduced takes from its time and adds none."""
    limits: list[float] = []
    advance = BlockingLink.advance

    def noted(link: BlockingLink) -> None:
        assert link.connection is not None
        limits.append(link.connection.gettimeout() or 0)
        advance(link)

    producer = remote.producer(TOPIC, delivery_timeout_ms=9_000)
    monkeypatch.setattr(BlockingLink, "advance", noted)
    producer.publish(b"v")

    assert max(limits) <= 9


def test_nothing_is_sent_again_once_it_is_closed(
    proxy: Proxy, remote: goqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pauses before it tries again when the producer is closed fails."""
    producer = remote.producer(TOPIC)
    producer.publish(b"first")
    proxy.plan(Operation.PRODUCE, Fate.LOSE_REQUEST, Fate.LOSE_REQUEST)
    monkeypatch.setattr(time, "sleep", lambda _: producer.close())
    with pytest.raises(DeadlineExceededError):
        producer.publish(b"late")

    assert stored(remote) == [b"first"]
