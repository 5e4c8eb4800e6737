"""Settlements a disk refuses for good: whoever flushes or closes hears of them."""

import asyncio

import pytest

import goqueue
from goqueue.base.errors import GoQueueError, StorageFailedError
from goqueue.client.consumer.aio import AsyncConsumer
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.runtime import broker as broker_module
from goqueue.testing.disk import MemoryDisk
from tests.client.consuming import publish
from tests.client.failing import TIMEOUT_SECONDS, opened

pytestmark = pytest.mark.usefixtures("_small")

STATE_LOGS = "logs/__consumer_offsets/*.log"
COUNT = 60


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 1)


def fail(disk: MemoryDisk) -> None:
    """Let the state of groups reach the disk no more."""
    disk.fail_sync(STATE_LOGS, forever=True)


def consume(consumer: goqueue.Consumer, disk: MemoryDisk) -> None:
    """Ack a part before the disk fails and the rest afterwards, in pieces."""
    messages = consumer.poll(COUNT)
    assert len(messages) == COUNT
    for message in messages[:20]:
        message.ack()
    consumer.flush()
    fail(disk)
    for message in messages[20:40]:
        message.ack()
    with pytest.raises(StorageFailedError, match="20 settlements were refused"):
        consumer.flush()
    for message in messages[40:]:
        message.ack()


def test_flush_raises_again_for_what_was_acked_since() -> None:
    """The pause after a failure is waited for: nothing is left unsent in silence."""
    disk = MemoryDisk()
    with opened(disk) as (client, _):
        client.create_topic("orders", partitions=1)
        publish(client, "orders", COUNT)
        consumer = client.consumer("billing", ["orders"])
        consume(consumer, disk)
        with pytest.raises(StorageFailedError, match="20 settlements were refused"):
            consumer.flush()
        # Told once: nothing is left to say.
        consumer.flush()
        consumer.close()


def test_close_raises_for_what_was_acked_and_not_stored() -> None:
    """Also where nobody has flushed."""
    disk = MemoryDisk()
    with opened(disk) as (client, _):
        client.create_topic("orders", partitions=1)
        publish(client, "orders", COUNT)
        consumer = client.consumer("billing", ["orders"])
        consume(consumer, disk)
        with pytest.raises(StorageFailedError, match="20 settlements were refused"):
            consumer.close()


def test_an_error_within_the_block_is_not_replaced() -> None:
    """What close could not do is logged then: the first error matters more."""
    disk = MemoryDisk()
    with opened(disk) as (client, _):
        client.create_topic("orders", partitions=1)
        publish(client, "orders", COUNT)
        with pytest.raises(ZeroDivisionError):
            _fail_after_acks(client, disk)


def _fail_after_acks(client: goqueue.Client, disk: MemoryDisk) -> None:
    with client.consumer("billing", ["orders"]) as consumer:
        consume(consumer, disk)
        raise ZeroDivisionError


def test_the_asynchronous_consumer_tells_likewise() -> None:
    """Its flush and its close raise what was refused."""
    disk = MemoryDisk()
    with opened(disk) as (client, link):
        client.create_topic("orders", partitions=1)
        publish(client, "orders", COUNT)

        async def main() -> list[str]:
            consumer = AsyncConsumer(
                link,
                ConsumerOptions(group="billing", topics=["orders"]),
                timeout_s=TIMEOUT_SECONDS,
            )
            messages = await consumer.poll(COUNT)
            fail(disk)
            told: list[str] = []
            for end, act in ((20, consumer.flush), (40, consumer.flush), (60, consumer.close)):
                for message in messages[end - 20 : end]:
                    message.ack()
                try:
                    await act()
                except GoQueueError as error:
                    told.append(error.message.split(";", maxsplit=1)[0])
            return told

        told = asyncio.run_coroutine_threadsafe(main(), client._thread.loop)  # noqa: SLF001
        assert told.result(TIMEOUT_SECONDS) == ["20 settlements were refused"] * 3
