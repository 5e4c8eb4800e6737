"""A poll over HTTP that is cut while it waits begins the grace of its member."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from goqueue.base.ids import GroupId, MemberId
from goqueue.testing.clock import FakeClock
from tests.transport.http.queueing import Worker
from tests.transport.http.running import Running
from tests.transport.http.test_poll_waiting import under_way, until

GRACE_MS = 2_000


@pytest.fixture
def worker(server: Running) -> Worker:
    server.create(num_partitions=1)
    return Worker(server)


@contextmanager
def a_poll(worker: Worker, count: int = 1) -> Iterator[None]:
    """Poll on a connection of its own, which ends without having read the answer."""
    server = worker.server
    with server.connect() as peer:
        path = f"/groups/billing/poll?member_id={worker.member}&timeout=60s"
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: under_way(server) == count)
        yield
    until(lambda: under_way(server) == count - 1)


def is_member(worker: Worker, clock: FakeClock, after_ms: int) -> bool:
    """Let time pass; return whether the worker is a member then."""
    clock.advance(after_ms)
    groups = worker.server.broker.groups
    worker.server.inside(groups.sweep)
    found: MemberId = MemberId(worker.member)
    return worker.server.inside(lambda: found in groups.get(GroupId("billing")).members)


def test_a_cut_poll_ends_the_membership_after_the_grace(worker: Worker, clock: FakeClock) -> None:
    """Between requests an HTTP member has no connection; one that waits for messages has."""
    with a_poll(worker):
        pass

    assert is_member(worker, clock, GRACE_MS - 1)
    assert not is_member(worker, clock, 1)


def test_who_asks_again_in_time_stays(worker: Worker, clock: FakeClock) -> None:
    """Another poll, or a heartbeat, within the grace."""
    with a_poll(worker):
        pass
    assert is_member(worker, clock, GRACE_MS - 1)
    reply = worker.server.post("/groups/billing/heartbeat", {"member_id": worker.member})
    assert reply.status_code == 200
    assert is_member(worker, clock, GRACE_MS)
    with a_poll(worker):
        pass
    assert is_member(worker, clock, GRACE_MS - 1)
    assert worker.ask().status_code == 200

    assert is_member(worker, clock, GRACE_MS)


def test_a_poll_that_is_answered_begins_no_grace(worker: Worker, clock: FakeClock) -> None:
    """Requests come and go: silence between them is for the session timeout."""
    assert worker.ask().status_code == 200
    assert worker.ask(timeout="1ms").status_code == 200

    assert is_member(worker, clock, GRACE_MS)
    assert is_member(worker, clock, 27_000)


def test_another_poll_that_waits_stands_for_the_member(worker: Worker, clock: FakeClock) -> None:
    """One of two is cut, and nothing happens; then the other is."""
    with a_poll(worker):
        with a_poll(worker, 2):
            pass
        assert is_member(worker, clock, GRACE_MS)

    assert not is_member(worker, clock, GRACE_MS)
