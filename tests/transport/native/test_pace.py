"""Slow, silent and greedy clients: they hurt themselves, the broker's memory stays bounded."""

import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from goqueue.base.units import MiB
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.transport.native import connection, departure, server
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from tests.transport.native.raw import NOW_US, Raw, begin_large, frames_of, packed
from tests.transport.native.running import TIMEOUT_SECONDS, Running

Hurried = Callable[[], AbstractContextManager[None]]


def fill(raw: Raw, *, frames: int, frame_bytes: int) -> None:
    raw.create()
    frame = encode_row(Draft(value=bytes(frame_bytes), timestamp_us=NOW_US))
    for _ in range(frames):
        assert raw.offer(frame)[1] == ""


def fetch_all(raw: Raw) -> int:
    """Read the topic to its end; return how many bytes came."""
    offset = received = 0
    end = raw.end_offset()
    while offset < end:
        parts, frames = raw.fetch(calls.FetchPart(0, offset), bytes_max=32 * MiB)
        assert parts[0].failure is None, parts[0].failure
        offset = parts[0].next_offset
        received += len(frames)
    return received


def pass_time(seconds: float) -> None:
    """Let time pass where it is the subject of the test."""
    threading.Event().wait(seconds)


def greeted_at_once(server: Running) -> Raw:
    """Connect and greet in the broker's own thread: its clock begins when both are there."""

    def begin() -> Raw:
        raw = server.connect(greet=False)
        raw.send(Operation.HELLO, calls.Hello(1, "raw"))
        return raw

    raw = server.inside(begin)
    raw.reply(calls.HelloReply)
    return raw


@pytest.fixture
def hasty_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave little time to greet."""
    monkeypatch.setattr(connection, "HELLO_SECONDS_MAX", 0.2)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Hurried:
    """Give a context in which the other limits of time are short; what needs time comes before."""

    @contextmanager
    def hurry() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(connection, "REQUEST_SECONDS_MAX", 0.2)
            patch.setattr(departure, "REPLY_SECONDS_MAX", 0.5)
            patch.setattr(departure, "REPLY_SECONDS_CROWDED", 0.1)
            yield

    return hurry


class TestTime:
    @pytest.mark.usefixtures("hasty_hello")
    def test_a_connection_that_says_nothing_is_closed(self, server: Running) -> None:
        """Half-open connections do not add up."""
        with server.connect(greet=False) as raw:
            assert "in time" in raw.refusal().message
            assert raw.is_closed()

    @pytest.mark.usefixtures("hasty_hello")
    @pytest.mark.parametrize("size", [1, 13, 14, 15])
    def test_half_a_hello_is_not_a_hello(self, server: Running, size: int) -> None:
        """Whoever begins to greet and stops is closed, too."""
        with server.connect(greet=False) as raw:
            raw.write(packed(Operation.HELLO, calls.Hello(1, "slow"))[:size])

            assert "in time" in raw.refusal().message
            assert raw.is_closed()

    def test_a_request_that_stops_arriving_is_given_up(
        self, server: Running, hurried: Hurried
    ) -> None:
        """What arrived of it is dropped; other clients notice nothing."""
        with server.connect() as raw, server.connect() as other:
            other.create()
            with hurried():
                begin_large(raw, arrived=100_000)

                assert raw.refusal().code == "invalid_request"
                assert raw.is_closed()
            assert other.offer(frames_of(b"fine")) == (0, "")

    def test_dribbling_gains_no_time(self, server: Running, hurried: Hurried) -> None:
        """One byte now and then does not keep a request alive."""
        whole = packed(Operation.DESCRIBE_TOPIC, calls.TopicCall("x" * 5_000))
        with server.connect() as raw, hurried():
            written = 0
            while not select.select([raw.socket], [], [], 0.02)[0]:
                raw.write(whole[written : written + 1])
                written += 1

            assert 0 < written < len(whole)
            assert raw.refusal().code == "invalid_request"

    def test_an_idle_connection_stays(
        self, server: Running, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between requests a client may be silent as long as it likes."""
        for name in ("HELLO_SECONDS_MAX", "REQUEST_SECONDS_MAX"):
            monkeypatch.setattr(connection, name, 0.03)
        monkeypatch.setattr(departure, "REPLY_SECONDS_MAX", 0.03)
        with greeted_at_once(server) as raw:
            pass_time(0.1)
            raw.ping()

    def test_a_client_that_takes_no_replies_is_dropped(
        self, server: Running, hurried: Hurried
    ) -> None:
        """What was read for it is free again."""
        with server.connect() as other, server.connect(receive_bytes=4_096) as slow:
            fill(other, frames=4, frame_bytes=8 * MiB)
            with hurried():
                for _ in range(20):
                    slow.send(
                        Operation.FETCH,
                        calls.Fetch("orders", 32 * MiB, 0, [calls.FetchPart(0, 0)]),
                    )
                deadline = time.monotonic() + TIMEOUT_SECONDS
                while server.inside(server.broker.metrics.active_connections._value.get) > 1:  # noqa: SLF001 - the gauge has no getter
                    assert time.monotonic() < deadline
                    pass_time(0.05)

            assert fetch_all(other) > 32 * MiB


def test_readers_that_hold_all_the_memory_are_dropped_for_those_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A huge message cannot be cut, so who does not take it makes room for who does."""
    monkeypatch.setattr(departure, "REPLY_SECONDS_CROWDED", 2.0)
    monkeypatch.setattr(server, "REPLY_BUFFER_BYTES_MAX", 20 * MiB)
    with Running(tmp_path / "data") as running, ExitStack() as stack:
        other = stack.enter_context(running.connect())
        fill(other, frames=3, frame_bytes=10 * MiB)
        for _ in range(10):
            slow = stack.enter_context(running.connect(receive_bytes=4_096))
            slow.send(Operation.FETCH, calls.Fetch("orders", 1, 0, [calls.FetchPart(0, 0)]))

        assert fetch_all(other) > 30 * MiB


def test_half_requests_that_fill_the_budget_stop_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where stalled clients hold all the memory there is, the others go one at a time."""
    monkeypatch.setattr(connection, "REQUEST_SECONDS_CROWDED", 2.0)
    monkeypatch.setattr(server, "REQUEST_BUFFER_BYTES_MAX", 2 * MiB)
    with Running(tmp_path / "data") as running, ExitStack() as stack:
        other = stack.enter_context(running.connect())
        other.create()
        stalled = [stack.enter_context(running.connect()) for _ in range(4)]
        for raw in stalled:
            begin_large(raw, arrived=MiB)
        writers = [stack.enter_context(running.connect()) for _ in range(4)]
        frames = encode_row(Draft(value=bytes(5 * MiB), timestamp_us=NOW_US))
        header = calls.Produce("orders", "all", [calls.ProducePart(0, len(frames))])
        senders = [
            threading.Thread(target=raw.send, args=(Operation.PRODUCE, header, frames))
            for raw in writers
        ]
        for sender in senders:
            sender.start()
        placed = [raw.reply(calls.Produced).parts[0].base_offset for raw in writers]
        for sender in senders:
            sender.join()

        assert sorted(placed) == [0, 1, 2, 3]
        other.ping()


def test_thousands_of_requests_at_once_are_started_a_few_at_a_time(server: Running) -> None:
    """A flood of waiting fetches on one connection holds a bounded number of them."""
    with server.connect() as raw, server.connect() as other:
        raw.create()
        wait = packed(Operation.FETCH, calls.Fetch("orders", 1, 60_000, [calls.FetchPart(0, 0)]))
        flood = threading.Thread(target=raw.write, args=(wait * 20_000,))
        flood.start()
        other.ping()
        waiters = server.inside(lambda: len(server.broker.topic("orders").partitions[0].waiters))
        other.offer(frames_of(b"news"))

        assert waiters <= 128
        for _ in range(20_000):
            assert raw.receive() is not None
        flood.join()


def test_reads_that_nobody_takes_are_not_made(server: Running) -> None:
    """P11: of many fetches sent ahead only those are read that the system can take."""
    requests, rows, worth = 100, 200, 10
    with server.connect() as other, server.connect(receive_bytes=4_096) as slow:
        other.create()
        frame = encode_row(Draft(value=bytes(1_000), timestamp_us=NOW_US))
        assert other.offer(frame * rows)[1] == ""
        fetch = calls.Fetch("orders", MiB, 0, [calls.FetchPart(0, 0)])
        slow.write(packed(Operation.FETCH, fetch) * requests)
        consumed = server.broker.topic("orders").meter.consumed
        made = -1
        # As long as any is read between two requests of another client, others may follow.
        while made != (made := server.inside(lambda: int(consumed.total))):
            for _ in range(20):
                other.ping()

        assert rows <= made <= rows * worth


def test_stopping_does_not_wait_for_slow_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that takes nothing cannot keep the broker from stopping."""
    monkeypatch.setattr(server, "STOP_SECONDS_MAX", 0.3)
    running = Running(tmp_path / "data")
    with running.connect() as other, running.connect(receive_bytes=4_096) as slow:
        fill(other, frames=4, frame_bytes=8 * MiB)
        slow.send(Operation.FETCH, calls.Fetch("orders", 32 * MiB, 0, [calls.FetchPart(0, 0)]))
        other.ping()
        running.close()

        assert slow.receive() is None


def test_stopping_answers_what_is_under_way(tmp_path: Path) -> None:
    """A request the broker has begun is answered before the connection ends."""
    running = Running(tmp_path / "data")
    with running.connect() as raw:
        raw.create()
        raw.send(Operation.FETCH, calls.Fetch("orders", 1, 500, [calls.FetchPart(0, 0)]))
        correlation = raw.send(Operation.PING)
        raw.reply(calls.Nothing)
        running.close()

        packet = raw.receive()
        assert packet is not None
        assert packet.correlation == correlation - 1
        assert raw.is_closed()
