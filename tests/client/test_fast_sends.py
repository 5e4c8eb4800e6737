"""The quick ways to send a message do what the general ones do."""

import asyncio
import itertools
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

import goqueue
import goqueue.aio
from goqueue.base.errors import GoQueueError
from goqueue.client.aio.link import NativeLink
from goqueue.client.producer import awaited as awaited_module
from goqueue.client.producer import gatherer as gatherer_module
from goqueue.client.producer.gatherer import Gatherer
from goqueue.client.producer.options import ProducerOptions
from goqueue.client.producer.pile import Pile, SendFuture
from goqueue.client.producer.publisher import Publisher
from goqueue.client.producer.single import Single, single_of
from goqueue.client.producer.sizes import OVERSIZE_SUSPECT_BYTES
from goqueue.client.producer.special import PLAIN
from goqueue.client.protocol.outcome import Place
from tests.runtime.rig import run

PILE_BYTES = 20_000
MESSAGES = 600


class Heap:
    """A gatherer that never learns of a broker, and what its calls returned."""

    def __init__(self, *, is_quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        # Times as numbers: the same in both, and as there, no two are one object.
        monkeypatch.setattr(gatherer_module, "time_ns", itertools.count(10**18).__next__)
        link = NativeLink("127.0.0.1:1")
        loop = asyncio.get_running_loop()
        options = ProducerOptions(linger_ms=60_000, buffer_bytes=1 << 30)
        self._is_quick = is_quick
        self._gatherer = Gatherer(link, loop, "orders", options, loop_thread=0)
        self._futures: list[SendFuture | str] = []

    def send(self, value: bytes | None, key: bytes | None, special: tuple[Any, ...]) -> None:
        try:
            if self._is_quick:
                self._futures.append(self._gatherer.send(value, key, *special))
            else:
                fields: Any = None if special == PLAIN else special
                future = self._gatherer._add(value, key, fields)  # noqa: SLF001 - the twin
                self._futures.append(future)
        except GoQueueError as error:
            self._futures.append(error.message)

    def piles(self) -> list[Pile]:
        """Return all piles, the first first, and close the last."""
        found: list[Pile] = []
        pile: Pile | None = self._gatherer.pile
        self._gatherer.pile.close()
        while pile is not None:
            found.append(pile)
            pile = pile.previous
        return found[::-1]

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all messages in the order in which they would go out."""
        return [
            (value, key, time_ns, pile.extras.get(row))
            for pile in self.piles()
            for row, (value, key, time_ns) in enumerate(
                zip(pile.values, pile.keys, pile.times_ns, strict=True)
            )
        ]

    def size(self) -> int:
        return sum(pile.sealed_size for pile in self.piles())

    def places(self) -> list[int | str]:
        """Return which of all rows the message of each call is, or why it is none."""
        piles = self.piles()
        starts = itertools.accumulate((len(pile) for pile in piles), initial=0)
        start_of = {id(pile): start for pile, start in zip(piles, starts, strict=False)}
        return [
            one if isinstance(one, str) else start_of[id(one._pile)] + one._row  # noqa: SLF001
            for one in self._futures
        ]


def message(random: Random) -> tuple[bytes | None, bytes | None, tuple[Any, ...]]:
    """Return what is sent: mostly bytes with a key, sometimes large, special or not allowed."""
    size = random.choice([0, 10, 100, 100, 1_000, OVERSIZE_SUSPECT_BYTES])
    value = None if random.random() < 0.05 else bytes(size + random.randrange(9))
    key = random.choice([b"", b"k", b"key", b"k" * 70_000 if random.random() < 0.05 else None])
    special: list[Any] = [*PLAIN]
    if random.random() < 0.1:
        special[0] = random.choice([{"a": b"1"}, {"a": bytes(70_000)}])
    if random.random() < 0.1:
        special[random.choice([1, 2])] = random.choice([0, 1, 2, 3, 10_000])
    return value, key, tuple(special)


@pytest.mark.parametrize("seed", range(5))
def test_send_and_add_gather_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """``Gatherer.send``: the same rows in the same order; a pile may end a message later."""
    monkeypatch.setattr(gatherer_module, "PILE_BYTES_MAX", PILE_BYTES)

    async def main() -> None:
        heaps = []
        for is_quick in (True, False):
            random = Random(seed)
            heap = Heap(is_quick=is_quick, monkeypatch=monkeypatch)
            for _ in range(MESSAGES):
                heap.send(*message(random))
            heaps.append(heap)
        quick, general = heaps

        assert quick.rows() == general.rows()
        assert quick.places() == general.places()
        assert quick.size() == general.size()
        assert len(quick.piles()) > 3

    run(main())


def some_fields(random: Random) -> dict[str, Any]:
    """Return what a message is published with, some of it not allowed."""
    fields: dict[str, Any] = {"timestamp": datetime(2026, 1, 1 + random.randrange(9), tzinfo=UTC)}
    if random.random() < 0.3:
        fields["headers"] = random.choice([{"a": "b", "c": b"\xff"}, {"a": bytes(70_000)}])
    if random.random() < 0.3:
        fields["priority"] = random.choice(["low", "high", 1, 9, "odd"])
    if random.random() < 0.3:
        fields["partition"] = random.randrange(4)
    if random.random() < 0.4:
        fields["dedup_id"] = random.choice(["1", b"2", "3", "4", b"", "x" * 2_000])
    if random.random() < 0.1:
        fields["deliver_at"] = datetime(2040, 1, 1, tzinfo=UTC)
        fields["delay_id"] = random.choice([None, "d"])
    return fields


@pytest.mark.parametrize("seed", range(3))
def test_publish_and_send_publish_the_same(
    client: goqueue.Client, topic: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``single_of`` returns, raises and stores what ``send(...).result()`` does."""
    quick_calls = []
    publish = Publisher.publish

    def note(*args: Any) -> Place:
        quick_calls.append(args)
        return publish(*args)

    monkeypatch.setattr(Publisher, "publish", note)
    answers: list[list[object]] = []
    stored: list[object] = []
    for way in ("publish", "send"):
        random, name = Random(seed), f"{topic}-{way}"
        client.create_topic(name, partitions=3, retention_ms=0, dedup_window_ms=600_000)
        producer = client.producer(name)
        found: list[object] = []
        for _ in range(80):
            value = random.choice([None, b"", random.randbytes(50)])
            key, fields = random.choice([b"", b"k", random.randbytes(3)]), some_fields(random)
            try:
                if way == "publish":
                    place = producer.publish(value, key=key, **fields)
                else:
                    place = producer.send(value, key=key, **fields).result(60)
            except GoQueueError as error:
                found.append((error.code, error.message))
            else:
                found.append((place.partition, place.offset, place.timestamp_us))
                found.append((place.durability, place.is_duplicate))
        answers.append(found)
        stored.append(sorted((m.partition, m.offset, *_fields_of(m)) for m in client.read(name)))

    assert answers[0] == answers[1]
    assert stored[0] == stored[1]
    assert len(quick_calls) == 80


def _fields_of(message: goqueue.Message) -> tuple[object, ...]:
    headers = sorted((message.headers or {}).items())
    return message.key, message.value, headers, message.priority, message.timestamp_us


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tasks", [1, 5])
def test_awaited_publish_and_awaited_send_publish_the_same(
    address: str, topic: str, seed: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``single_of``, or a pile for the tasks of one turn: as ``await send(...)`` does it."""
    singles = []

    def note(*args: Any, **fields: Any) -> Single:
        singles.append(args)
        return single_of(*args, **fields)

    monkeypatch.setattr(awaited_module, "single_of", note)

    async def publish(producer: goqueue.aio.AsyncProducer, way: str, random: Random) -> object:
        value = random.choice([None, b"", random.randbytes(50)])
        key, fields = random.choice([b"", b"k", random.randbytes(3)]), some_fields(random)
        try:
            if way == "publish":
                place = await producer.publish(value, key=key, **fields)
            else:
                place = await producer.send(value, key=key, **fields)
        except GoQueueError as error:
            return error.code, error.message
        return (
            place.partition, place.offset, place.timestamp_us, place.durability, place.is_duplicate
        )  # fmt: skip

    async def main() -> None:
        answers: list[list[object]] = []
        stored: list[object] = []
        async with await goqueue.aio.connect(address) as client:
            for way in ("publish", "send"):
                random, name = Random(seed), f"{topic}-{way}"
                await client.create_topic(
                    name, partitions=3, retention_ms=0, dedup_window_ms=600_000
                )
                # Lingering, so that what several tasks send is one pile in both ways.
                producer = client.producer(name, linger_ms=1_000)
                await producer.publish(
                    b"first", key=b"k", timestamp=datetime(2026, 1, 1, tzinfo=UTC)
                )
                found: list[object] = []
                for _ in range(40):
                    turn = [publish(producer, way, random) for _ in range(tasks)]
                    found += await asyncio.gather(*turn)
                answers.append(found)
                messages = [message async for message in client.read(name)]
                stored.append(sorted((m.partition, m.offset, *_fields_of(m)) for m in messages))

        assert answers[0] == answers[1]
        assert stored[0] == stored[1]
        assert len(singles) > 20 if tasks == 1 else len(singles) < 20

    run(main())
