"""Many threads and a signal handler that share a producer: every future knows its own message."""

import signal
import threading
from collections.abc import Callable, Iterator
from time import time_ns
from types import FrameType
from typing import Any

import pytest

import goqueue
from goqueue.base.errors import BufferFullError
from goqueue.client.producer import gatherer as producer_module
from goqueue.client.producer.packing import Packing
from goqueue.client.producer.pile import Pile, SendFuture

THREADS = 4
EACH = 15_000


def check(client: goqueue.Client, topic: str, sent: list[tuple[bytes, SendFuture]]) -> None:
    """Compare what each future says with what is there."""
    messages = client.read(topic, end="latest")
    found = {(int(m.partition), int(m.offset)): m.value for m in messages}
    places = [(value, future.result(60)) for value, future in sent]

    assert len(found) == len(sent)
    assert all(found[place.partition, place.offset] == value for value, place in places)


@pytest.mark.parametrize("batch_bytes", [2_000, 512 * 1024])
def test_threads_share_a_producer(client: goqueue.Client, topic: str, batch_bytes: int) -> None:
    """However often piles are closed between them, nothing is lost, doubled or mistaken."""
    producer = client.producer(topic, linger_ms=1, batch_bytes=batch_bytes)
    sent: list[list[tuple[bytes, SendFuture]]] = [[] for _ in range(THREADS)]

    def send(number: int) -> None:
        for count in range(EACH):
            value = b"%d-%d" % (number, count)
            headers = {"n": b"1"} if count % 1_000 == 0 else None
            sent[number].append((value, producer.send(value, key=b"k%d" % count, headers=headers)))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(60)

    check(client, topic, [one for part in sent for one in part])


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_a_signal_handler_may_send_as_well(client: goqueue.Client, topic: str) -> None:
    """It comes between any two steps of a send, and each keeps its own message."""
    producer = client.producer(topic, linger_ms=1, batch_bytes=20_000)
    sent: list[tuple[bytes, SendFuture]] = []

    def interrupt(_: int, __: FrameType | None) -> None:
        value = b"signal-%d" % len(sent)
        sent.append((value, producer.send(value, key=b"signal")))

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.000_5, 0.000_5)
    for count in range(EACH):
        value = b"plain-%d" % count
        future = producer.send(value, key=b"plain")
        sent.append((value, future))
    signal.setitimer(signal.ITIMER_REAL, 0)
    producer.flush(60)

    assert len(sent) > EACH
    check(client, topic, sent)


def once(action: Callable[[], object]) -> Callable[[], None]:
    """Return what does something the first time it is called."""
    todo = [action]

    def happen() -> None:
        if todo:
            todo.pop()()

    return happen


def between(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Have something happen while a message has a pile and is not in it yet, once."""
    happen = once(action)

    def now_ns() -> int:
        happen()
        return time_ns()

    monkeypatch.setattr(producer_module, "time_ns", now_ns)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("headers", [None, {"n": b"1"}])
def test_a_handler_closes_the_pile_that_a_message_is_about_to_begin(
    client: goqueue.Client,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, bytes] | None,
) -> None:
    """The interrupted message goes into the next one, with all that it has."""
    producer = client.producer(topic, linger_ms=0)
    sent: list[tuple[bytes, SendFuture]] = []

    def interrupt(_: int, __: FrameType | None) -> None:
        sent.append((b"handler", producer.send(b"handler", key=b"h")))

    signal.signal(signal.SIGALRM, interrupt)
    between(monkeypatch, lambda: signal.raise_signal(signal.SIGALRM))
    sent.append((b"plain", producer.send(b"plain", key=b"p", headers=headers)))
    producer.flush(60)

    assert [value for value, _ in sent] == [b"handler", b"plain"]
    check(client, topic, sent)
    found = {m.value: dict(m.headers or {}) for m in client.read(topic, end="latest")}
    assert found == {b"handler": {}, b"plain": headers or {}}


def test_the_loop_works_while_a_late_message_waits_for_room(
    client: goqueue.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pile is closed before it is in it, and fills the buffer: the loop can make room."""
    producer = client.producer(topic, linger_ms=10_000, buffer_bytes=1_000, block_ms_max=30_000)
    gatherer = producer._gatherer  # noqa: SLF001 - the loop is held until somebody waits for room
    is_waiting = threading.Event()
    wait_for_room = gatherer._wait_for_room  # noqa: SLF001

    def wait(size: int) -> None:
        is_waiting.set()
        wait_for_room(size)

    def close_pile() -> None:
        gatherer._loop.call_soon_threadsafe(is_waiting.wait, 30)  # noqa: SLF001
        gatherer.flush_now()

    large = bytes(2_000)
    sent = [(large, producer.send(large, key=b"k"))]
    monkeypatch.setattr(gatherer, "_wait_for_room", wait)
    between(monkeypatch, close_pile)
    late = bytes(1_500)
    sent.append((late, producer.send(late, key=b"k")))
    producer.flush(60)

    assert is_waiting.is_set()
    check(client, topic, sent)


@pytest.mark.usefixtures("alarm")
def test_a_handler_does_not_wait_for_room_that_only_its_own_thread_can_make(
    client: goqueue.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It interrupts the closing of a pile: it may fill the next one, and is refused beyond."""
    producer = client.producer(topic, linger_ms=10_000, buffer_bytes=1_000, block_ms_max=30_000)
    sent: list[tuple[bytes, SendFuture]] = []
    refused: list[str] = []

    def interrupt(_: int, __: FrameType | None) -> None:
        sent.append((b"handler", producer.send(b"handler", key=b"h")))
        with pytest.raises(BufferFullError) as caught:
            producer.send(bytes(999), key=b"h")
        refused.append(str(caught.value))

    happen = once(lambda: signal.raise_signal(signal.SIGALRM))
    cut = Packing.cut

    def interrupted_cut(packing: Packing, pile: Pile, transaction: int) -> Any:
        happen()
        return cut(packing, pile, transaction)

    signal.signal(signal.SIGALRM, interrupt)
    monkeypatch.setattr(Packing, "cut", interrupted_cut)
    large = bytes(2_000)
    sent.append((large, producer.send(large, key=b"k")))
    sent.append((b"plain", producer.send(b"plain", key=b"k", headers={"n": b"1"})))
    producer.flush(60)

    assert refused == ["the buffer of 1000 bytes stayed full for 0 s"]
    assert len(sent) == 3
    check(client, topic, sent)
