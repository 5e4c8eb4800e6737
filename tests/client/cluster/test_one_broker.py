"""A client of one broker asks nothing that it did not ask before there were clusters."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

import goqueue
import goqueue.aio
from goqueue.client.aio.link import NativeLink
from goqueue.wire.packet import Operation
from tests.client.proxy import Proxy


class Counting(Proxy):
    """Counts the requests that pass."""

    def total(self) -> Counter[Operation]:
        return Counter({Operation(number): count for number, count in self.seen.items()})


@pytest.fixture
def between(address: str) -> Iterator[Counting]:
    with Counting(address) as proxy:
        yield proxy


def test_publishing_and_reading_cost_no_more_requests(
    between: Counting, client: goqueue.Client
) -> None:
    """HELLO says that it is in no cluster; nobody asks for the metadata."""
    client.create_topic("plain-one", partitions=3)
    with goqueue.connect(between.address) as counted:
        assert isinstance(counted._link, NativeLink)  # noqa: SLF001 - the plain one
        with counted.producer("plain-one") as producer:
            for number in range(5):
                producer.publish(b"%d" % number)
        assert sum(1 for _ in counted.read("plain-one")) == 5

    assert between.total() == Counter(
        {
            Operation.HELLO: 3,
            Operation.DESCRIBE_TOPIC: 1,
            Operation.INIT_PRODUCER: 1,
            Operation.PRODUCE: 5,
            Operation.OFFSETS: 1,
            Operation.FETCH: between.total()[Operation.FETCH],
        }
    )


def test_an_event_loop_asks_no_more_either(between: Counting, client: goqueue.Client) -> None:
    """The same for the asynchronous client, and for a consumer."""
    client.create_topic("plain-two", partitions=2)

    async def story() -> None:
        async with (
            await goqueue.aio.connect(between.address) as counted,
            counted.producer("plain-two") as producer,
            counted.consumer("plain-two", ["plain-two"]) as consumer,
        ):
            await producer.publish(b"x")
            (message,) = await consumer.poll(1, wait_s=5)
            message.ack()
            await consumer.flush()

    asyncio.run(story())

    total = between.total()
    assert total[Operation.METADATA] == total[Operation.FIND_COORDINATOR] == 0
    assert (total[Operation.HELLO], total[Operation.JOIN_GROUP], total[Operation.SETTLE]) == (
        1,
        1,
        1,
    )
