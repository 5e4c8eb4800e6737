"""The connector against a cluster: planned by metadata, read from leaders and their heirs."""

from collections.abc import Iterator

import numpy as np
import pytest

from goqueue.base.errors import InvalidRequestError
from goqueue.client.producer.batch_sender import BatchSender
from goqueue.client.protocol.chunk import messages_in
from goqueue.core.record.columns import batch_of_drafts
from goqueue.core.record.message import Draft
from goqueue.spark.connector.broker import POOL, Broker, open_link
from goqueue.spark.connector.options import Connection
from goqueue.spark.connector.planning import OffsetRange
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from tests.acceptance.served import Served
from tests.client.cluster.blocking_fleet import PARTITIONS, TOPIC, BlockingFleet

ROWS = 60


@pytest.fixture
def nodes() -> Iterator[BlockingFleet]:
    fleet = BlockingFleet()
    yield fleet
    POOL.close()
    fleet.close()


def fill(connection: Connection) -> None:
    identity = Broker(connection).ask_once(
        Operation.INIT_PRODUCER, calls.InitProducer(), calls.ProducerIdentity
    )
    with POOL.link(connection) as link:
        sender = BatchSender(link, identity)
        drafts = [Draft(value=b"%d" % number, timestamp_us=number) for number in range(ROWS)]
        sender.send(TOPIC, batch_of_drafts(drafts)[0], np.arange(ROWS) % PARTITIONS)
        sender.flush()


@pytest.mark.parametrize("is_list", [True, False])
def test_tasks_read_from_leaders_and_follow_them(nodes: BlockingFleet, *, is_list: bool) -> None:
    """Offsets are those of all leaders; a range is read wherever its partition is by then."""
    servers = nodes.fleet.addresses if is_list else nodes.fleet["b"].address
    connection = Connection(servers=servers, timeout_ms=20_000)
    broker = Broker(connection)
    fill(connection)
    ends = {part.partition: part.end_offset for part in broker.offsets(TOPIC)}
    nodes.move(2, "a")
    nodes.kill("b", "c")
    ranges = [
        OffsetRange(topic=TOPIC, partition=partition, start_offset=0, end_offset=10)
        for partition in range(PARTITIONS)
    ]
    values = [
        message.value
        for wanted in ranges
        for chunk in broker.chunks(wanted, is_loss_fatal=True)
        for message in messages_in(chunk)
    ]

    assert ends == dict.fromkeys(range(PARTITIONS), 10)
    assert broker.topics() == [TOPIC]
    assert broker.volume(TOPIC)[0] == ROWS
    assert sorted(values, key=lambda value: int(value or b"0")) == [b"%d" % n for n in range(ROWS)]


def test_news_of_any_leader_end_a_wait(nodes: BlockingFleet) -> None:
    """A stream that waits is told when something comes, or when its time is over."""
    connection = Connection(servers=nodes.fleet.addresses, timeout_ms=20_000)
    broker = Broker(connection)
    ends = dict.fromkeys(range(PARTITIONS), 0)
    broker.wait(TOPIC, ends, wait_ms=50)
    fill(connection)
    broker.wait(TOPIC, ends, wait_ms=20_000)


def test_brokers_that_are_in_no_cluster_are_refused_in_a_list(broker: Served) -> None:
    """A list names nodes of one cluster; the first is not taken for all of them."""
    connection = Connection(servers=f"127.0.0.1:1,{broker.address}", timeout_ms=5_000)
    with pytest.raises(InvalidRequestError, match="is a broker by itself"):
        open_link(connection)
