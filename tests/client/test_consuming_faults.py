"""Consumers over lost connections and killed brokers."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import goqueue
from goqueue.base.errors import ConnectionLostError, ReceiptExpiredError, StaleReceiptError
from goqueue.wire.packet import Operation
from tests.acceptance.served import Served
from tests.client.consuming import SECONDS_MAX, eventually, in_flight, lag, publish, take
from tests.client.proxy import Fate, Proxy


@pytest.fixture
def far(proxy: Proxy) -> Iterator[goqueue.Client]:
    with goqueue.connect(proxy.address) as client:
        yield client


def test_a_settlement_whose_answer_is_lost(
    proxy: Proxy, far: goqueue.Client, client: goqueue.Client, topic: str
) -> None:
    """It is sent again on another connection; that it was accepted before is no error."""
    publish(client, topic, 300)
    proxy.plan(Operation.SETTLE, Fate.LOSE_REPLY, Fate.LOSE_REPLY, Fate.LOSE_REQUEST)
    refused: list[goqueue.Refusal] = []
    with far.consumer(topic, [topic], on_refused=refused.append, prefetch=20) as consumer:
        for message in take(consumer, 300):
            message.ack()
        consumer.flush()

        assert lag(client, topic) == 0
        assert refused == []


def test_a_poll_whose_answer_is_lost(
    proxy: Proxy, far: goqueue.Client, client: goqueue.Client, topic: str
) -> None:
    """What it leased comes again when that lease is over; the member stays the same."""
    publish(client, topic, 10)
    with far.consumer(topic, [topic], visibility_timeout="1s") as consumer:
        member = consumer.member_id
        proxy.plan(Operation.POLL, Fate.LOSE_REPLY)
        values = set()
        for message in consumer:
            values.add(message.value)
            message.ack()
            if len(values) == 10:
                break

        assert consumer.member_id == member


def test_connections_that_are_cut_again_and_again(
    proxy: Proxy, far: goqueue.Client, client: goqueue.Client, topic: str
) -> None:
    """Everything is consumed whatever the network does."""
    publish(client, topic, 2_000)
    values = Counter[bytes | None]()
    stop = threading.Event()

    def cut() -> None:
        seen = 0
        while not stop.wait(0.05):
            # A slow machine gets somewhere between two cuts, too.
            if len(values) > seen:
                seen = len(values)
                proxy.cut()

    cutting = threading.Thread(target=cut)
    options = {"visibility_timeout": "1s", "prefetch": 50, "max_retries": 1_000}
    with far.consumer(topic, [topic], **options) as consumer:
        cutting.start()
        for message in consumer:
            values[message.value] += 1
            message.ack()
            if len(values) == 2_000:
                break
        stop.set()
        cutting.join(SECONDS_MAX)

    eventually(lambda: lag(client, topic) == 0 or in_flight(client, topic) == 0)


def test_a_broker_that_stays_away(address: str, topic: str) -> None:
    """The iterator raises when the client's timeout is over."""
    with Proxy(address) as between, goqueue.connect(between.address, timeout=3) as client:
        consumer = client.consumer(topic, [topic])
        between.is_reachable = False
        between.cut()
        with pytest.raises(ConnectionLostError):
            take(consumer, 1)
        between.is_reachable = True


def test_heartbeats_that_are_lost(
    proxy: Proxy, far: goqueue.Client, client: goqueue.Client, topic: str
) -> None:
    """A member that cannot be heard for a while is still the same member."""
    with far.consumer(topic, [topic]) as consumer:
        member = consumer.member_id
        proxy.plan(Operation.HEARTBEAT, Fate.LOSE_REPLY, Fate.LOSE_REQUEST)
        consumer._upkeep._nudged.set()  # noqa: SLF001 - an early heartbeat
        publish(client, topic, 5)
        for message in take(consumer, 5):
            message.ack()

        assert consumer.member_id == member


class Ledger:
    """Consumes, and knows which acks are certain."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.again: list[tuple[int, int]] = []
        self._acked: set[tuple[int, int]] = set()

    def wait_for(self, count: int) -> None:
        eventually(lambda: len(self.seen) > count, f"delivery of {count} messages")

    def work(self, consumer: goqueue.Consumer) -> None:
        batch: list[tuple[int, int]] = []
        for message in consumer:
            place = (message.partition, message.offset)
            if place in self._acked:
                self.again.append(place)
            self.seen.add(place)
            message.ack()
            batch.append(place)
            if len(batch) == 100:
                # Where a restart takes longer than a lease, some come again.
                with contextlib.suppress(ReceiptExpiredError, StaleReceiptError):
                    consumer.flush()
                    self._acked.update(batch)
                batch.clear()


def test_a_broker_killed_under_consumers(tmp_path: Path) -> None:
    """After every restart they go on; everything is settled, and nothing acked comes again."""
    count = 6_000
    ledger = Ledger()
    with Served(tmp_path / "data") as served, goqueue.connect(served.address) as client:
        client.create_topic("orders", partitions=3)
        publish(client, "orders", count, keys=500)
        options = {"visibility_timeout": "2s", "prefetch": 40, "max_retries": 1_000}
        consumers = [client.consumer("billing", ["orders"], **options) for _ in range(2)]
        threads = [
            threading.Thread(target=ledger.work, args=(one,), daemon=True) for one in consumers
        ]
        for thread in threads:
            thread.start()
        for share in (1, 2):
            ledger.wait_for(count * share // 4)
            served.kill()
            served.start()
        eventually(lambda: lag(client, "billing") == 0, "the end")
        for consumer in consumers:
            consumer.close()
        for thread in threads:
            thread.join(SECONDS_MAX)

        assert len(ledger.seen) == count
        assert ledger.again == []
        assert client.describe_group("billing").members == []
