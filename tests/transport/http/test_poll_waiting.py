"""Polls that wait: woken by news, ended by a client that goes away, cut by no other timeout."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import pytest

from goqueue.base.errors import OverloadedError
from goqueue.base.ids import MemberId
from goqueue.runtime.broker import Broker
from goqueue.runtime.queue.polling import Polled
from goqueue.service.service import Service
from goqueue.service.verb import RequestContext
from goqueue.testing.clock import FakeClock
from goqueue.transport.http import connection, poll_wait
from goqueue.transport.http.call import Call
from goqueue.transport.http.exchange import DisconnectedError
from goqueue.transport.http.poll_wait import PollWait
from goqueue.transport.http.room import Share
from goqueue.wire.queue_calls import Poll
from tests.runtime.grants import POLLING
from tests.transport.http.queueing import Worker, fill, values
from tests.transport.http.running import TIMEOUT_SECONDS, Running


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, asking again and again."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never became so"


def under_way(server: Running) -> int:
    """Return how many requests are being answered."""
    return server.inside(lambda: len(server.http._hub.tasks))  # noqa: SLF001 - nothing else tells


def in_flight(worker: Worker) -> int:
    lag = worker.server.get(f"/groups/{worker.group}/lag").json()
    return sum(part["in_flight"] for part in lag["partitions"])


@contextmanager
def waiting(worker: Worker, timeout: str = "60s") -> Iterator[Any]:
    """Poll in another thread; the poll has begun to wait when this goes on."""
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(lambda: worker.poll(timeout=timeout))
        until(lambda: under_way(worker.server) == 1)
        yield poll


@pytest.fixture
def worker(server: Running) -> Worker:
    server.create(num_partitions=1)
    return Worker(server, mode="shared")


def test_a_waiting_poll_gets_what_is_published(worker: Worker) -> None:
    """It is answered when there is something, not when its time is over."""
    with waiting(worker) as poll:
        fill(worker.server, 2)
        found = values(poll.result(TIMEOUT_SECONDS))

    assert found in (["m0"], ["m0", "m1"])


def test_no_timeout_of_the_server_cuts_a_wait(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll may wait longer than anything else on a connection (trap G4)."""
    for name in ("HEAD_SECONDS_MAX", "WRITE_SECONDS_MAX"):
        monkeypatch.setattr(connection, name, 0.5)
    path = f"/groups/billing/poll?member_id={worker.member}&timeout=1500ms"
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    def ask() -> socket.socket:
        peer = worker.server.connect()
        peer.sendall(request)
        return peer

    # In the server's own thread: its clock begins when the whole head is there.
    with worker.server.inside(ask) as peer:
        answer = b""
        while chunk := peer.recv(65_536):
            answer += chunk

    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"messages":{}' in answer


def test_a_client_that_goes_away_leaves_nothing_leased(worker: Worker) -> None:
    """Its poll ends with its connection: what comes later goes to others, as a first delivery."""
    server = worker.server
    other = Worker(server, mode="shared")
    with server.connect() as peer:
        path = f"/groups/billing/poll?member_id={worker.member}&timeout=60s"
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: under_way(server) == 1)
    until(lambda: under_way(server) == 0)
    fill(server, 3)
    messages = other.poll()

    assert values(messages) == ["m0", "m1", "m2"]
    assert {one["delivery_count"] for one in messages} == {1}


def test_a_client_that_does_not_read_its_reply_leaves_nothing_leased(worker: Worker) -> None:
    """Half of a reply is none: what it leased goes to others, as a first delivery."""
    server = worker.server
    value = "x" * 100_000
    for _ in range(4):
        server.publish(*({"value": value, "partition": 0} for _ in range(25)))
    other = Worker(server, mode="shared")
    with server.connect() as peer:
        path = f"/groups/billing/poll?member_id={worker.member}&timeout=0s&limit=100"
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: in_flight(worker) > 0)
        leased = in_flight(worker)
    until(lambda: in_flight(worker) == 0)
    messages = other.poll()

    assert [one["offset"] for one in messages[:leased]] == list(range(leased))
    assert {one["delivery_count"] for one in messages} == {1}


def test_a_reply_that_finds_no_room_leaves_nothing_leased(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told to come again later is told of no messages."""
    server = worker.server
    server.publish(*({"value": "x" * 100_000, "partition": 0} for _ in range(10)))
    with monkeypatch.context() as patch:
        patch.setattr(Share, "grow", refuse)
        assert worker.ask(limit=10).status_code == 503

    messages = worker.poll()

    assert len(messages) == 10
    assert {one["delivery_count"] for one in messages} == {1}


def refuse(_: Share, __: int) -> None:
    raise OverloadedError("no room for the reply")


def test_a_client_that_asks_for_more_and_goes_away_leaves_nothing_leased(worker: Worker) -> None:
    """A request behind the poll does not hide that nobody waits for either any more."""
    server = worker.server
    other = Worker(server, mode="shared")
    with server.connect() as peer:
        path = f"/groups/billing/poll?member_id={worker.member}&timeout=60s"
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: under_way(server) == 1)
        peer.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    until(lambda: under_way(server) == 0)
    fill(server, 3)
    messages = other.poll()

    assert values(messages) == ["m0", "m1", "m2"]
    assert {one["delivery_count"] for one in messages} == {1}


class _Leaving:
    """A client that is gone after some turns of the loop."""

    grant = POLLING

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._gone = asyncio.Event()

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()

    async def leave(self) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self._gone.set()

    async def gone(self) -> None:
        await self._gone.wait()

    async def poll(self, broker: Broker, member: str) -> Polled:
        leaving = asyncio.create_task(self.leave())
        poll = Poll("billing", member, 0, 100, 1_000_000, 0)
        wait = PollWait(Service(broker).queue, cast("Call", self), poll)
        try:
            return await wait.run(RequestContext(memoryview(b"")))
        finally:
            await leaving


@pytest.mark.parametrize("turns", range(12))
def test_whenever_a_client_goes_away_nothing_stays_leased(worker: Worker, turns: int) -> None:
    """Before the lease, during its sync or just before the answer: all is given back."""
    fill(worker.server, 5)
    client = _Leaving(turns)
    try:
        polled = worker.server.await_inside(client.poll(worker.server.broker, worker.member))
    except DisconnectedError:
        assert in_flight(worker) == 0
        messages = worker.poll()
        assert {one["delivery_count"] for one in messages} == {1}
        assert len(messages) == 5
    else:
        assert sum(part.rows for part in polled.parts) == 5


def test_a_stopping_server_lets_waiting_polls_go(worker: Worker) -> None:
    """They are answered, empty, and the server stops at once."""
    with waiting(worker) as poll:
        worker.server.stop()
        assert poll.result(TIMEOUT_SECONDS) == []


def test_a_member_that_waits_is_alive(
    worker: Worker, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll may wait longer than the session: its open connection is a sign of life."""
    monkeypatch.setattr(poll_wait, "LIVE_SIGNS", 3_000)
    groups = worker.server.broker.groups
    with waiting(worker) as poll:
        for _ in range(3):
            clock.advance(20_000)
            until(
                lambda: (
                    worker.server.inside(
                        lambda: groups.get("billing").heard_at_ms(MemberId(worker.member))
                    )
                    == clock.now_ms()
                )
            )
            worker.server.inside(groups.sweep)
        fill(worker.server, 1)
        assert values(poll.result(TIMEOUT_SECONDS)) == ["m0"]


def test_a_wait_ends_when_the_member_is_gone(worker: Worker) -> None:
    """A member that leaves while its poll waits is told so."""
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(lambda: worker.ask(timeout="60s"))
        until(lambda: under_way(worker.server) == 1)
        worker.server.post("/groups/billing/leave", {"member_id": worker.member})
        reply = poll.result(TIMEOUT_SECONDS)

    assert reply.status_code == 404
