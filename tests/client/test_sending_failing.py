"""Messages a disk refuses for good: whoever flushes or closes a producer hears of them."""

import asyncio

import pytest

import goqueue
from goqueue.base.errors import GoQueueError, StorageFailedError
from goqueue.client.aclient import AsyncClient
from goqueue.testing.disk import MemoryDisk
from tests.client.failing import TIMEOUT_SECONDS, opened

LOGS = "logs/orders/*.log"
NOT_PUBLISHED = "3 messages were not published; the first: cannot sync"


def send(producer: goqueue.Producer, count: int = 3) -> list[goqueue.SendFuture]:
    return [producer.send(b"%d" % number) for number in range(count)]


def test_flush_and_close_raise_for_messages_nobody_asked_about() -> None:
    """Each time for those that failed since; none is told twice."""
    disk = MemoryDisk()
    with opened(disk) as (client, _):
        client.create_topic("orders", partitions=1)
        producer = client.producer("orders")
        send(producer)
        producer.flush()
        disk.fail_sync(LOGS)
        send(producer)
        with pytest.raises(StorageFailedError, match=NOT_PUBLISHED):
            producer.flush()
        producer.flush()
        send(producer)
        with pytest.raises(StorageFailedError, match=NOT_PUBLISHED):
            producer.close()
        producer.close()


def test_what_was_asked_about_is_not_told_again() -> None:
    """By either question; only the rest is counted."""
    disk = MemoryDisk()
    with opened(disk) as (client, _):
        client.create_topic("orders", partitions=1)
        with client.producer("orders") as producer:
            disk.fail_sync(LOGS)
            first, second, *rest = send(producer, 5)
            with pytest.raises(StorageFailedError):
                first.result()
            assert isinstance(second.exception(), StorageFailedError)
            assert isinstance(second.exception(), StorageFailedError)
            with pytest.raises(StorageFailedError, match=NOT_PUBLISHED):
                producer.flush()
            for future in rest:
                assert isinstance(future.exception(), StorageFailedError)
            send(producer)
            with pytest.raises(StorageFailedError, match=NOT_PUBLISHED):
                producer.flush()


def test_the_callback_hears_of_it_instead() -> None:
    """With ``on_error`` nothing is raised by flush or close."""
    disk = MemoryDisk()
    heard: list[int] = []
    with opened(disk) as (client, _):
        client.create_topic("orders", partitions=1)
        with client.producer("orders", on_error=lambda _, count: heard.append(count)) as producer:
            disk.fail_sync(LOGS)
            send(producer)
            producer.flush()

    assert sum(heard) == 3


def test_a_client_closes_everything_and_then_raises() -> None:
    """The broker in this process is stopped, whatever its producers had to say."""
    disk = MemoryDisk()
    with opened(disk) as (client, _):
        client.create_topic("orders", partitions=1)
        producer = client.producer("orders")
        disk.fail_sync(LOGS)
        send(producer)
        with pytest.raises(StorageFailedError, match=NOT_PUBLISHED):
            client.close()

    with opened(disk.kill()) as (client, _):
        assert client.offsets("orders", "latest") == {0: 0}


def test_an_error_within_the_block_is_not_replaced() -> None:
    """What close had to say is logged then."""
    disk = MemoryDisk()
    with opened(disk) as (client, _):
        client.create_topic("orders", partitions=1)
        disk.fail_sync(LOGS)
        with pytest.raises(ZeroDivisionError):
            _fail_after_sending(client)


def _fail_after_sending(client: goqueue.Client) -> None:
    with client.producer("orders") as producer:
        send(producer)
        raise ZeroDivisionError


def test_the_asynchronous_producer_tells_likewise() -> None:
    """Its flush and its close raise what failed."""
    disk = MemoryDisk()
    with opened(disk) as (client, link):
        client.create_topic("orders", partitions=1)

        async def main() -> list[str]:
            producer = AsyncClient(link, timeout_s=TIMEOUT_SECONDS).producer("orders")
            disk.fail_sync(LOGS)
            told: list[str] = []
            for act in (producer.flush, producer.close):
                for number in range(3):
                    producer.send(b"%d" % number)
                try:
                    await act()
                except GoQueueError as error:
                    told.append(error.message.split(";", maxsplit=1)[0])
            return told

        told = asyncio.run_coroutine_threadsafe(main(), client._thread.loop)  # noqa: SLF001
        assert told.result(TIMEOUT_SECONDS) == ["3 messages were not published"] * 2
