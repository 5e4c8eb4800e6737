"""Messages that tasks of an event loop await: shared requests, order, doubt, closing."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import BufferFullError, ClosedError, DeadlineExceededError
from goqueue.client.aio.link import NativeLink
from goqueue.client.protocol import outbox
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from tests.client.proxy import Fate, Proxy
from tests.runtime.rig import run


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[calls.Produce]:
    """Take the publish requests that go out without a task."""
    found: list[calls.Produce] = []
    begin = NativeLink.begin

    def note(self: NativeLink, operation: Operation, header: Any, *rest: Any) -> None:
        if operation is Operation.PRODUCE:
            found.append(header)
        begin(self, operation, header, *rest)

    monkeypatch.setattr(NativeLink, "begin", note)
    return found


async def started(*deeds: Coroutine[Any, Any, goqueue.Place]) -> list[asyncio.Task[goqueue.Place]]:
    """Begin publishes in one turn of the loop, and let them be queued."""
    tasks = [asyncio.create_task(deed) for deed in deeds]
    await asyncio.sleep(0)
    return tasks


def test_tasks_of_one_turn_share_a_request(
    address: str, topic: str, requests: list[calls.Produce]
) -> None:
    """However many tasks publish at the same moment, one request goes out."""

    async def main() -> None:
        async with await goqueue.aio.connect(address) as client, client.producer(topic) as producer:
            await producer.publish(b"first", key=b"k")
            requests.clear()

            places = await asyncio.gather(
                *[producer.publish(b"%d" % number, key=b"k") for number in range(50)]
            )

            assert [place.offset for place in places] == list(range(1, 51))
            assert len(requests) == 1
            await producer.publish(b"last", key=b"k")
            assert len(requests) == 2

    run(main())


def test_without_a_slot_they_wait_and_go_together(
    address: str, topic: str, requests: list[calls.Produce]
) -> None:
    """While as many requests are under way as may be, what is published gathers."""

    async def main() -> None:
        async with (
            await goqueue.aio.connect(address) as client,
            client.producer(topic, in_flight_max=1) as producer,
        ):
            await producer.publish(b"first", key=b"k")
            requests.clear()
            tasks = await started(producer.publish(b"0", key=b"k"))
            await asyncio.sleep(0)
            for number in range(1, 20):
                tasks += await started(producer.publish(b"%d" % number, key=b"k"))

            places = await asyncio.gather(*tasks)

            assert [place.offset for place in places] == list(range(1, 21))
            assert len(requests) <= 3

    run(main())


def test_publish_and_send_keep_the_order_of_the_calls(address: str, topic: str) -> None:
    """Whatever is lingering, queued or under way, messages of one key lie as they were given."""

    async def main() -> None:
        async with await goqueue.aio.connect(address) as client:
            for linger_ms in (0, 5):
                producer = client.producer(topic, linger_ms=linger_ms)
                await producer.publish(b"first", key=b"k")
                tasks: list[asyncio.Task[goqueue.Place]] = []
                wanted: list[bytes] = []
                for number in range(60):
                    value = b"%d/%d" % (linger_ms, number)
                    wanted.append(value)
                    if number % 7 in {0, 3, 4}:
                        producer.send(value, key=b"k")
                    else:
                        tasks += await started(producer.publish(value, key=b"k"))
                    if number % 11 == 0:
                        await asyncio.sleep(0)
                await asyncio.gather(*tasks)
                await producer.flush()

                found = [message.value async for message in client.read(topic)]
                assert found[-len(wanted) :] == wanted

    run(main())


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
def test_a_lost_connection_leaves_one_copy(
    address: str, topic: str, proxy: Proxy, fate: Fate
) -> None:
    """P3: what was published when the connection ended is sent again under its numbers."""

    async def main() -> None:
        async with (
            await goqueue.aio.connect(proxy.address) as client,
            client.producer(topic) as producer,
        ):
            await producer.publish(b"first", key=b"k")
            proxy.plan(Operation.PRODUCE, fate, Fate.PASS, fate)
            places = [await producer.publish(b"%d" % number, key=b"k") for number in range(4)]
            more = await asyncio.gather(*[producer.publish(b"m", key=b"k") for _ in range(3)])

            assert [place.offset for place in (*places, *more)] == list(range(1, 8))
        async with await goqueue.aio.connect(address) as reader:
            found = [message.value async for message in reader.read(topic)]
        assert found == [b"first", b"0", b"1", b"2", b"3", b"m", b"m", b"m"]

    run(main())


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_allowed(
    topic: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is given up for another, and the message sent again."""
    monkeypatch.setattr(outbox, "ANSWER_SECONDS_MAX", 0.3)

    async def main() -> None:
        async with (
            await goqueue.aio.connect(proxy.address) as client,
            client.producer(topic) as producer,
        ):
            await producer.publish(b"first", key=b"k")
            proxy.plan(Operation.PRODUCE, Fate.SWALLOW)

            place = await producer.publish(b"second", key=b"k")

            assert (place.offset, place.is_duplicate) == (1, True)
            assert (await producer.publish(b"third", key=b"k")).offset == 2

    run(main())


def test_a_failed_message_of_a_cancelled_task_is_told_by_flush(topic: str, proxy: Proxy) -> None:
    """Who cancels ``publish`` does not hear of its message; who flushes does."""

    async def main() -> None:
        async with await goqueue.aio.connect(proxy.address) as client:
            producer = client.producer(topic, delivery_timeout_ms=400)
            await producer.publish(b"first", key=b"k")
            proxy.plan(Operation.PRODUCE, *[Fate.LOSE_REQUEST] * 40)
            (task,) = await started(producer.publish(b"lost", key=b"k"))
            await asyncio.sleep(0)
            task.cancel()

            with pytest.raises(DeadlineExceededError, match="1 messages were not published"):
                await producer.flush()
            with pytest.raises(DeadlineExceededError):
                await producer.publish(b"lost, too", key=b"k")
            # Its task has heard of it.
            await producer.flush()
            proxy.plans_end()

    run(main())


def test_a_full_buffer_is_told(address: str, topic: str) -> None:
    """More bytes than ``buffer_bytes`` are not taken."""

    async def main() -> None:
        async with (
            await goqueue.aio.connect(address) as client,
            client.producer(topic, buffer_bytes=5_000) as producer,
        ):
            await producer.publish(b"first", key=b"k")
            tasks = await started(*[producer.publish(bytes(3_000), key=b"k") for _ in range(2)])
            await asyncio.sleep(0)
            with pytest.raises(BufferFullError):
                await producer.publish(bytes(3_000), key=b"k")

            places = await asyncio.gather(*tasks)
            await producer.drain()

            assert [place.offset for place in places] == [1, 2]
            assert (await producer.publish(b"v", key=b"k")).offset == 3

    run(main())


def test_close_waits_for_what_is_published_and_takes_no_more(address: str, topic: str) -> None:
    """What was begun before is stored; what comes later is refused."""

    async def main() -> None:
        async with await goqueue.aio.connect(address) as client:
            producer = client.producer(topic)
            await producer.publish(b"first", key=b"k")
            tasks = await started(*[producer.publish(b"%d" % number) for number in range(5)])
            await producer.close()

            assert all(task.done() for task in tasks)
            assert len({(await task).partition for task in tasks}) == 3
            with pytest.raises(ClosedError):
                await producer.publish(b"late")

    run(main())
