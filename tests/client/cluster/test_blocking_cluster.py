"""Ordinary code against a cluster, by real sockets: publish, read, consume while leaders move."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

import goqueue
from goqueue.base.errors import ConnectionLostError, NotLeaderError
from goqueue.client.blocking.routed_link import RoutedBlockingLink
from goqueue.client.dial import Dial
from goqueue.client.producer.batch_sender import BatchSender
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.exchange import decode
from goqueue.core.record.columns import batch_of_drafts
from goqueue.core.record.message import Draft
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from tests.client.cluster.blocking_fleet import PARTITIONS, TOPIC, BlockingFleet


@pytest.fixture
def nodes() -> Iterator[BlockingFleet]:
    fleet = BlockingFleet()
    yield fleet
    fleet.close()


@pytest.fixture
def client(nodes: BlockingFleet) -> Iterator[goqueue.Client]:
    with goqueue.connect(nodes.fleet.addresses) as connected:
        yield connected


def values_by_partition(client: goqueue.Client) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for message in client.read(TOPIC):
        found[message.partition].append(message.value)
    return found


def expected(count: int) -> dict[int, list[bytes]]:
    return {
        partition: [b"%d" % n for n in range(count) if n % PARTITIONS == partition]
        for partition in range(PARTITIONS)
    }


def test_what_is_published_is_read_in_order_over_moves(
    nodes: BlockingFleet, client: goqueue.Client
) -> None:
    """``publish`` and ``send`` alike, while leaders move and one node dies."""
    count = 600
    with client.producer(TOPIC, linger_ms=1) as producer:
        for number in range(count):
            if number % 100 == 50:
                nodes.move(number // 100, "ca"[number // 100 % 2])
            if number == 400:
                nodes.kill("b", "c")
            if number % 10:
                producer.send(b"%d" % number, partition=number % PARTITIONS)
            else:
                producer.publish(b"%d" % number, partition=number % PARTITIONS)
        producer.flush()

    assert values_by_partition(client) == expected(count)
    assert sum(batch.num_rows for batch in client.read_batches(TOPIC)) == count


def test_publish_in_doubt_is_sent_again_with_its_sequence(
    nodes: BlockingFleet, client: goqueue.Client
) -> None:
    """A leader that lost its place after the append: the heir recognises the repeat."""
    fleet = nodes.fleet

    async def move_then_refuse(operation: Operation) -> None:
        if operation is Operation.PRODUCE:
            await fleet.move(TOPIC, 0, "b")
            raise NotLeaderError("moved after the append")

    fleet["a"].after = move_then_refuse
    with client.producer(TOPIC) as producer:
        place = producer.publish(b"once", partition=0)
        again = producer.publish(b"next", partition=0)

    assert (place.offset, place.is_duplicate, again.offset) == (0, True, 1)
    assert values_by_partition(client)[0] == [b"once", b"next"]


def test_a_reader_follows_leaders(nodes: BlockingFleet, client: goqueue.Client) -> None:
    """No gap and no repeat while partitions move under a reader that follows."""
    found: dict[int, list[bytes | None]] = defaultdict(list)
    count, is_done = 300, threading.Event()

    def follow() -> None:
        for message in client.read(TOPIC, follow=True):
            found[message.partition].append(message.value)
            if sum(map(len, found.values())) == count:
                break
        is_done.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    with client.producer(TOPIC, linger_ms=1) as producer:
        for number in range(count):
            producer.send(b"%d" % number, partition=number % PARTITIONS)
            if number % 60 == 30:
                producer.flush()
                nodes.move(number // 60, "cab"[number // 60 % 3])
        producer.flush()

    assert is_done.wait(60)
    assert found == expected(count)


def test_a_consumer_polls_and_settles_at_leaders(
    nodes: BlockingFleet, client: goqueue.Client
) -> None:
    """Every message is consumed and acked, by a loop and by ``run``, also when a node dies."""
    with client.producer(TOPIC) as producer:
        for number in range(120):
            producer.send(b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
    got: Counter[bytes | None] = Counter()
    with client.consumer("loop", [TOPIC], prefetch=12) as consumer:
        for message in consumer:
            got[message.value] += 1
            message.ack()
            if sum(got.values()) == 120:
                consumer.stop()
    assert set(got.values()) == {1}
    assert len(got) == 120
    assert sum(part.lag for part in client.group_progress("loop")) == 0

    handled: set[bytes | None] = set()
    with client.consumer("run", [TOPIC], visibility_timeout=1.0) as consumer:

        def handle(message: goqueue.Delivery) -> None:
            handled.add(message.value)
            if len(handled) == 30:
                nodes.kill("c", "a")
            if len(handled) == 120:
                consumer.stop()

        consumer.run(handle)
        consumer._hold.take_refused()  # noqa: SLF001 - leases do not move with the log here
    assert len(handled) == 120


def test_whole_batches_go_to_their_leaders(nodes: BlockingFleet) -> None:
    """Arrow batches of a program with columns: each row once, whoever leads."""
    link = RoutedBlockingLink(ClusterView(nodes.fleet.addresses.split(",")), Dial(timeout_s=10))
    answer = link.request(Operation.INIT_PRODUCER, calls.InitProducer())
    sender = BatchSender(link, decode(answer.header, calls.ProducerIdentity))
    drafts = [Draft(value=b"%d" % number, timestamp_us=number) for number in range(600)]
    batch, _ = batch_of_drafts(drafts)
    for round_ in range(6):
        rows = batch.slice(round_ * 100, 100)
        numbers = np.arange(round_ * 100, round_ * 100 + 100) % PARTITIONS
        sender.send(TOPIC, rows, numbers.astype(np.int32))
        nodes.move(round_, "bca"[round_ % 3])
    sender.flush()

    assert sender.rows == 600
    with goqueue.connect(nodes.fleet.addresses) as client:
        assert values_by_partition(client) == expected(600)
    link.close()


def test_administration_goes_to_leaders_and_coordinators(client: goqueue.Client) -> None:
    """Offsets, resets and progress are put together from all leaders."""
    with client.producer(TOPIC) as producer:
        for number in range(60):
            producer.send(b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
    with client.consumer("workers", [TOPIC]) as consumer:
        assert consumer.poll(10, timeout=10)
        consumer.commit({(TOPIC, partition): 3 for partition in range(PARTITIONS)})
    reset = client.reset_offsets("workers", TOPIC, 5)

    assert client.offsets(TOPIC) == dict.fromkeys(range(PARTITIONS), 10)
    assert [part.end_offset for part in client.describe_topic(TOPIC).partitions] == [10] * 6
    assert reset == {(TOPIC, partition): 5 for partition in range(PARTITIONS)}
    assert set(client.group_offsets("workers").values()) == {5}
    assert [group.name for group in client.list_groups()] == ["workers"]
    assert client.delayed(TOPIC) == []
    assert client.overview().topics[0].messages_in == 60


def test_no_address_answers(nodes: BlockingFleet) -> None:
    """All that were tried are named, with the reason of each."""
    del nodes
    with pytest.raises(ConnectionLostError, match=r"127.0.0.1:1, 127.0.0.1:2 answers"):
        goqueue.connect("127.0.0.1:1,127.0.0.1:2", timeout=3)
