"""The order of keys: what is handed out is what was published, whatever the network does."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import CorruptFrameError
from goqueue.client.consumer.decode import Portion
from goqueue.client.consumer.hold import Holdings
from goqueue.client.protocol.exchange import Answer
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import Polled
from tests.client.consuming import SECONDS_MAX, lag
from tests.client.proxy import Fate, Proxy

MESSAGES = 4_000
KEYS = 600


@pytest.fixture
def proxy(address: str) -> Iterator[Proxy]:
    """A network between the consumer and the broker."""
    with Proxy(address) as between:
        yield between


class Row(NamedTuple):
    """A message, as far as it is compared."""

    value: bytes
    headers: dict[str, bytes] | None


def _publish(client: goqueue.Client, topic: str) -> dict[bytes, list[Row]]:
    expected: dict[bytes, list[Row]] = defaultdict(list)
    with client.producer(topic, linger_ms=50) as producer:
        for number in range(MESSAGES):
            key = b"key-%d" % (number * 7 % KEYS)
            headers = {"n": b"%d" % number} if number % 1_000 < 500 else None
            expected[key].append(Row(b"%d" % number, headers))
            producer.send(b"%d" % number, key=key, headers=headers)
    return expected


def _consume(
    consumer: goqueue.Consumer, found: dict[bytes, list[Row]] | None = None
) -> dict[bytes, list[Row]]:
    found = defaultdict(list) if found is None else found
    for message in consumer:
        assert message.key is not None
        # A trace may have been begun for it on the way.
        own = {name: value for name, value in (message.headers or {}).items() if name == "n"}
        headers = own or None
        row = Row(message.value or b"", headers)
        if row not in found[message.key]:
            found[message.key].append(row)
        message.ack()
        if sum(map(len, found.values())) == MESSAGES:
            break
    return found


def test_each_key_comes_as_it_was_published(client: goqueue.Client, topic: str) -> None:
    """Poll after poll takes rows of the same batches; nothing is lost or out of order."""
    expected = _publish(client, topic)
    with client.consumer(topic, [topic], ordering="key", prefetch=400) as consumer:
        found = _consume(consumer)
        consumer.flush()

    assert found == expected
    assert lag(client, topic) == 0


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
def test_replies_that_are_lost(
    proxy: Proxy, client: goqueue.Client, topic: str, fate: Fate
) -> None:
    """What was leased for them comes again on a new connection."""
    expected = _publish(client, topic)
    options = {"ordering": "key", "prefetch": 400, "visibility_timeout": "1s", "max_retries": 99}
    with (
        goqueue.connect(proxy.address, timeout=3) as far,
        far.consumer(topic, [topic], **options) as consumer,
    ):
        proxy.plan(Operation.POLL, Fate.PASS, Fate.PASS, fate, Fate.PASS, fate)
        found = _consume(consumer)

    assert found == expected


def test_headers_of_a_message_that_comes_again_are_its_own(
    client: goqueue.Client, topic: str
) -> None:
    """What a handler did to those of an earlier delivery is not seen."""
    _publish(client, topic)
    seen: dict[tuple[int, int], list[dict[str, bytes]]] = defaultdict(list)
    place = (-1, -1)
    options = {"ordering": "key", "prefetch": 400, "max_retries": 99}
    with client.consumer(topic, [topic], **options) as consumer:
        for message in consumer:
            headers = message.headers
            if headers is None:
                message.ack()
                continue
            place = message.partition, message.offset
            seen[place].append(dict(headers))
            if message.delivery_count == 2:
                break
            assert isinstance(headers, dict)
            headers["changed"] = b"by a handler"
            message.nack(delay=0)

    assert seen[place][0] == seen[place][1]


def test_an_interrupted_reply_is_forgotten_with_its_connection(
    client: goqueue.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a reply, and going on with the same consumer."""
    expected = _publish(client, topic)
    take = Holdings.take
    polled: list[Polled] = []
    interrupted: list[int] = []

    def interrupt(self: Holdings, answer: Answer, **options: Any) -> Polled:
        # Signals interrupt the main thread only; the client's loop takes replies as well.
        is_main = threading.current_thread() is threading.main_thread()
        is_due = len(polled) >= 3 * (1 + len(interrupted)) and len(interrupted) < 3
        if is_main and is_due:
            interrupted.append(len(polled))
            raise KeyboardInterrupt
        polled.append(take(self, answer, **options))
        return polled[-1]

    monkeypatch.setattr(Holdings, "take", interrupt)
    found: dict[bytes, list[Row]] = defaultdict(list)
    options = {"ordering": "key", "prefetch": 400, "visibility_timeout": "1s", "max_retries": 99}
    with client.consumer(topic, [topic], **options) as consumer:
        while sum(map(len, found.values())) < MESSAGES:
            with contextlib.suppress(KeyboardInterrupt):
                _consume(consumer, found)

    assert len(interrupted) == 3
    assert found == expected


@pytest.fixture
def _unreadable_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first messages of a reply make no sense."""
    messages = Portion.messages
    failed: list[Portion] = []

    def fail(self: Portion) -> Iterator[goqueue.Delivery]:
        if not failed:
            failed.append(self)
            raise CorruptFrameError("not in the reply")
        return messages(self)

    monkeypatch.setattr(Portion, "messages", fail)


@pytest.mark.usefixtures("_unreadable_once")
def test_what_cannot_be_read_is_given_back(client: goqueue.Client, topic: str) -> None:
    """It is an error once; afterwards the same messages come again."""
    expected = _publish(client, topic)
    with client.consumer(topic, [topic], ordering="key", prefetch=400) as consumer:
        with pytest.raises(CorruptFrameError):
            next(iter(consumer))
        found = _consume(consumer)

    assert found == expected


@pytest.mark.usefixtures("_unreadable_once")
def test_what_cannot_be_read_is_given_back_by_the_asynchronous_twin(
    address: str, client: goqueue.Client, topic: str
) -> None:
    """The same in an event loop: the first message comes, as a first delivery."""
    _publish(client, topic)

    async def main() -> int:
        async with (
            await goqueue.aio.connect(address) as other,
            other.consumer(topic, [topic], ordering="key") as consumer,
        ):
            with pytest.raises(CorruptFrameError):
                await consumer.poll()
            return (await consumer.poll(wait_s=SECONDS_MAX))[0].delivery_count

    assert asyncio.run(main()) == 1
