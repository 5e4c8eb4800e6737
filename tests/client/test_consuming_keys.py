"""The order of keys: what waits for a settlement does not wait for anything else."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import DiskFullError
from goqueue.client.aio.link import NativeLink
from goqueue.client.consumer.hold import Holdings
from goqueue.client.protocol.exchange import Answer
from goqueue.runtime.queue.consume import Consumption
from goqueue.runtime.queue.settlements import Settling
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import Polled
from tests.client.consuming import SECONDS_MAX, lag, publish, take

MESSAGES = 30
LINGER_MS = 10_000
"""Longer than any poll waits: who waits for it comes back with nothing first."""
PREFETCH = 3_400
"""One more than three polls ask for: with a single message in hand all of them are under way, and
none is left for its settlement to go with."""


@pytest.fixture
def empty_polls(monkeypatch: pytest.MonkeyPatch) -> list[Polled]:
    """Gather the polls that brought nothing."""
    found: list[Polled] = []
    take = Holdings.take

    def note(self: Holdings, answer: Answer, **options: Any) -> Polled:
        polled = take(self, answer, **options)
        if not polled.parts:
            found.append(polled)
        return polled

    monkeypatch.setattr(Holdings, "take", note)
    return found


def _loop(consumer: goqueue.Consumer, found: list[bytes]) -> None:
    for message in consumer:
        found.append(message.value or b"")
        message.ack()
        if len(found) == MESSAGES:
            return


def _loop_of_polls(consumer: goqueue.Consumer, found: list[bytes]) -> None:
    while len(found) < MESSAGES:
        for message in consumer.poll(timeout=SECONDS_MAX):
            found.append(message.value or b"")
            message.ack()


def _run(consumer: goqueue.Consumer, found: list[bytes]) -> None:
    def handle(message: goqueue.Delivery) -> None:
        found.append(message.value or b"")
        if len(found) == MESSAGES:
            consumer.stop()

    consumer.run(handle, concurrency=4)


@pytest.mark.parametrize("consume", [_loop, _loop_of_polls, _run])
def test_the_next_of_a_key_comes_at_once(
    client: goqueue.Client,
    topic: str,
    empty_polls: list[Polled],
    consume: Callable[[goqueue.Consumer, list[bytes]], None],
) -> None:
    """A consumer with nothing else to do sends its settlements without lingering."""
    values = publish(client, topic, MESSAGES, keys=1)
    found: list[bytes] = []
    options = {"ordering": "key", "settle_linger_ms": LINGER_MS, "prefetch": PREFETCH}
    with client.consumer(topic, [topic], **options) as consumer:
        consume(consumer, found)
        consumer.flush()

    assert found == values
    assert not empty_polls
    assert lag(client, topic) == 0


def test_acking_by_going_on_does_not_linger(
    client: goqueue.Client, topic: str, empty_polls: list[Polled]
) -> None:
    """With ``auto_ack`` nothing is sent for seconds, but for those who wait for it."""
    values = publish(client, topic, MESSAGES, keys=1)
    found: list[bytes] = []
    options = {"ordering": "key", "auto_ack": True, "prefetch": PREFETCH}
    with client.consumer(topic, [topic], **options) as consumer:
        for message in consumer:
            found.append(message.value or b"")
            if len(found) == MESSAGES:
                break

    assert found == values
    assert not empty_polls


@pytest.mark.parametrize("is_run", [False, True])
def test_the_asynchronous_twin(
    address: str, client: goqueue.Client, topic: str, empty_polls: list[Polled], *, is_run: bool
) -> None:
    """The same holds in an event loop, also while handlers run beside."""
    values = publish(client, topic, MESSAGES, keys=1)
    found: list[bytes] = []

    async def main() -> None:
        async with await goqueue.aio.connect(address) as other, asyncio.timeout(SECONDS_MAX):
            options = {"ordering": "key", "settle_linger_ms": LINGER_MS, "prefetch": PREFETCH}
            async with other.consumer(topic, [topic], **options) as consumer:

                async def handle(message: goqueue.Delivery) -> None:
                    found.append(message.value or b"")
                    await asyncio.sleep(0)
                    if len(found) == MESSAGES:
                        consumer.stop()

                if is_run:
                    await consumer.run(handle, concurrency=4)
                    return
                async for message in consumer:
                    await handle(message)
                    message.ack()

    asyncio.run(main())

    assert found == values
    assert not empty_polls
    assert lag(client, topic) == 0


SETTLES_MAX = 20
"""In a second or two, by polls and by lingering; whoever tries at once tries thousands of times."""


class FullDisk:
    """Refuses settlements until it is over, and counts them."""

    def __init__(self) -> None:
        self.is_over = False
        self.count = 0

    def meet(self) -> None:
        """Raise, unless it is over."""
        if not self.is_over:
            self.count += 1
            raise DiskFullError("no room on the disk")


def test_what_is_refused_for_a_while_is_not_sent_again_at_once(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that has nothing to do does not keep a broker busy that cannot do it."""
    disk, begin_settle = FullDisk(), Consumption.begin_settle

    def meet(self: Consumption, *args: Any) -> Settling:
        disk.meet()
        return begin_settle(self, *args)

    monkeypatch.setattr(Consumption, "begin_settle", meet)
    with goqueue.open(tmp_path / "data") as client:
        client.create_topic(topic)
        values = publish(client, topic, 5, keys=1)
        with client.consumer(topic, [topic], ordering="key") as consumer:
            (message,) = consumer.poll()
            message.ack()
            assert consumer.poll(timeout=1.5) == []
            assert 1 <= disk.count <= SETTLES_MAX
            disk.is_over = True

            found = [message.value or b"" for message in take(consumer, 1)]

        assert found == values[1:2]


def test_what_is_refused_for_a_while_waits_in_the_asynchronous_twin(
    address: str, client: goqueue.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in an event loop."""
    values = publish(client, topic, 5, keys=1)
    disk, request = FullDisk(), NativeLink.request

    async def meet(self: NativeLink, operation: Operation, *args: Any) -> Answer:
        if operation == Operation.SETTLE:
            disk.meet()
        return await request(self, operation, *args)

    monkeypatch.setattr(NativeLink, "request", meet)

    async def main() -> None:
        async with (
            await goqueue.aio.connect(address) as other,
            asyncio.timeout(SECONDS_MAX),
            other.consumer(topic, [topic], ordering="key") as consumer,
        ):
            (message,) = await consumer.poll()
            message.ack()
            assert await consumer.poll(wait_s=1.5) == []
            assert 1 <= disk.count <= SETTLES_MAX
            disk.is_over = True
            (message,) = await consumer.poll(wait_s=SECONDS_MAX)
            assert message.value == values[1]

    asyncio.run(main())


def test_large_messages_are_fetched_ahead(client: goqueue.Client, topic: str) -> None:
    """A reply full of large messages is a full one, however few they are."""
    count = 300
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(bytes(50_000), key=b"%d" % number)
    polls: list[int] = []
    with client.consumer(topic, [topic], ordering="key") as consumer:
        for message in consumer:
            polls.append(len(consumer._polls))  # noqa: SLF001 - what is under way meanwhile
            message.ack()
            if len(polls) == count:
                break

    # But for the first and the last reply, the next is always on its way.
    assert sum(1 for under_way in polls if under_way) > count / 2


def test_few_keys_among_many_messages(client: goqueue.Client, topic: str) -> None:
    """Where polls bring little, each goes out with the settlements that the next messages need."""
    values = publish(client, topic, 3_000, keys=7)
    found: dict[bytes | None, list[bytes]] = {}
    count = 0
    with client.consumer(topic, [topic], ordering="key") as consumer:
        for message in consumer:
            found.setdefault(message.key, []).append(message.value or b"")
            message.ack()
            count += 1
            if count == len(values):
                break
        consumer.flush()

    assert found == {b"key-%d" % key: values[key::7] for key in range(7)}
    assert lag(client, topic) == 0
