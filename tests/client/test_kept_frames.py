"""Frames a consumer keeps: what is handed out is what was published, whatever the network does."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import CorruptFrameError, ProtocolError
from goqueue.base.ids import Offset
from goqueue.base.limits import SHELF_BYTES_MAX, SHELF_ROW_BYTES
from goqueue.client.consumer_channel import SocketChannel
from goqueue.client.consumer_hold import Holdings
from goqueue.client.deliver_decode import Portion
from goqueue.client.kept_frames import KeptFrame, KeptFrames, Place
from goqueue.client.link import Answer
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.columns import build_batch
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.core.record.stamp import NO_STAMP
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import Polled
from tests.client.consuming import SECONDS_MAX, lag
from tests.client.proxy import Fate, Proxy

MESSAGES = 4_000
KEYS = 600
PLACE = ("orders", 0)


class Taking(NamedTuple):
    """What parts of replies named, and how many of these frames they brought."""

    named: list[int]
    brought: list[int]


@pytest.fixture
def taking(monkeypatch: pytest.MonkeyPatch) -> Taking:
    """Take note of the frames that replies speak of."""
    found = Taking([], [])
    take = KeptFrames.take

    def note(
        self: KeptFrames, place: Place, numbers: Sequence[int], frames: memoryview
    ) -> tuple[list[KeptFrame], memoryview]:
        before = self._shelf.next_number
        kept = take(self, place, numbers, frames)
        found.named.append(len(numbers))
        found.brought.append(self._shelf.next_number - before)
        return kept

    monkeypatch.setattr(KeptFrames, "take", note)
    return found


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


def test_what_is_kept_is_what_was_published(
    client: goqueue.Client, topic: str, taking: Taking
) -> None:
    """Frames come once and are named often; nothing is lost, doubled or out of order."""
    expected = _publish(client, topic)
    with client.consumer(topic, [topic], ordering="key", prefetch=400) as consumer:
        found = _consume(consumer)
        consumer.flush()

    assert found == expected
    assert lag(client, topic) == 0
    assert 0 < sum(taking.brought) < sum(taking.named) / 2


def test_an_embedded_broker_keeps_nothing(tmp_path: Path, topic: str, taking: Taking) -> None:
    """Within one process nothing is sent, so nothing is worth keeping."""
    with goqueue.open(tmp_path / "data") as client:
        client.create_topic(topic, partitions=2)
        expected = _publish(client, topic)
        with client.consumer(topic, [topic], ordering="key", prefetch=400) as consumer:
            assert _consume(consumer) == expected

    assert not taking.named


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
def test_replies_that_are_lost(
    proxy: Proxy, client: goqueue.Client, topic: str, taking: Taking, fate: Fate
) -> None:
    """A new connection begins with nothing."""
    expected = _publish(client, topic)
    options = {"ordering": "key", "prefetch": 400, "visibility_timeout": "1s", "max_retries": 99}
    with (
        goqueue.connect(proxy.address, timeout=3) as far,
        far.consumer(topic, [topic], **options) as consumer,
    ):
        proxy.plan(Operation.POLL, Fate.PASS, Fate.PASS, fate, Fate.PASS, fate)
        found = _consume(consumer)

    assert found == expected
    assert taking.named


def test_a_consumer_that_does_not_know_a_frame_begins_anew(
    client: goqueue.Client, topic: str, taking: Taking
) -> None:
    """It gives up the connection, and with it what the broker takes for kept."""
    expected = _publish(client, topic)
    options = {"ordering": "key", "prefetch": 400, "visibility_timeout": "1s", "max_retries": 99}
    with client.consumer(topic, [topic], **options) as consumer:
        channel = consumer._channel  # noqa: SLF001 - a shelf that lost everything
        assert isinstance(channel, SocketChannel)
        messages = iter(consumer)
        while not taking.named:
            next(messages).nack(delay=0)
        known = channel.kept
        channel.kept = KeptFrames()
        found = _consume(consumer)

        assert channel.kept is not known
    assert found == expected


def _frame(offset: int, rows: int = 3, value: bytes = b"v") -> bytes:
    batch, column_set = build_batch(
        keys=[b"k"] * rows, values=[value] * rows, timestamps_us=[1] * rows
    )
    packed = pack_batch(batch, column_set=column_set, first_timestamp_us=1, last_timestamp_us=1)
    return bytes(packed.frame(NO_STAMP, Offset(offset)))


def test_new_frames_are_the_first_of_a_part() -> None:
    """What is behind them is left; what is kept is found again."""
    kept = KeptFrames()
    (one, two), rest = kept.take(PLACE, [0, 1], memoryview(_frame(0) + _frame(3) + _frame(6)))
    assert (one.first_offset, two.end_offset, len(rest)) == (0, 6, len(_frame(6)))

    (again,), rest = kept.take(PLACE, [1], memoryview(b""))

    assert again is two
    assert not rest
    assert [list(column)[:1] for column in again.fields([4])[:3]] == [[1], [b"k"], [b"v"]]


def test_frames_that_make_room_for_others_are_used_before() -> None:
    """A part may name a frame that leaves the shelf for another of the same part."""
    kept = KeptFrames()
    large = bytes(SHELF_BYTES_MAX // 3 - SHELF_ROW_BYTES)
    (first, *_), _ = kept.take(PLACE, [0, 1], memoryview(_frame(0, 1, large) + _frame(1, 1, large)))

    (named, new), _ = kept.take(PLACE, [0, 2], memoryview(_frame(2, 1, large)))

    assert named is first
    assert new.first_offset == 2
    with pytest.raises(ProtocolError, match="frame 0 is not kept here"):
        kept.take(PLACE, [0], memoryview(b""))


@pytest.mark.parametrize(
    ("numbers", "payload", "error"),
    [
        ([1], b"", ProtocolError),
        ([-1], b"", ProtocolError),
        ([0], b"", CorruptFrameError),
        ([0], b"GQ" + bytes(100), CorruptFrameError),
        ([0], _frame(0)[:-1] + b"x", CorruptFrameError),
        ([0, 1], _frame(0), CorruptFrameError),
        ([0], encode_row(Draft(value=b"v", timestamp_us=1), offset=Offset(0)), CorruptFrameError),
    ],
)
def test_nonsense_is_refused(numbers: list[int], payload: bytes, error: type[Exception]) -> None:
    """A number nobody gave, a frame that is damaged, missing, or no batch."""
    with pytest.raises(error):
        KeptFrames().take(PLACE, numbers, memoryview(payload))


def test_a_frame_of_another_partition_is_refused() -> None:
    """Its offsets mean other messages there."""
    kept = KeptFrames()
    kept.take(PLACE, [0], memoryview(_frame(0)))

    with pytest.raises(ProtocolError, match="frame 0 is not kept here"):
        kept.take(("orders", 1), [0], memoryview(b""))


def test_headers_of_a_message_that_comes_again_are_its_own(
    client: goqueue.Client, topic: str, taking: Taking
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
            if taking.named and message.delivery_count == 2:
                break
            assert isinstance(headers, dict)
            headers["changed"] = b"by a handler"
            message.nack(delay=0)

    assert seen[place][0] == seen[place][1]


def test_an_interrupted_reply_is_forgotten_with_its_connection(
    client: goqueue.Client, topic: str, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a reply, and going on with the same consumer."""
    expected = _publish(client, topic)
    take = Holdings.take
    interrupted: list[int] = []

    def interrupt(self: Holdings, answer: Answer, **options: Any) -> Polled:
        if len(taking.named) >= 3 * (1 + len(interrupted)) and len(interrupted) < 3:
            interrupted.append(len(taking.named))
            raise KeyboardInterrupt
        return take(self, answer, **options)

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
