"""A native connection that ends without a leave is reported, and its member is soon gone."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from goqueue.base.ids import GroupId
from goqueue.wire import calls, group_calls
from goqueue.wire.packet import Operation
from tests.transport.native.raw import Raw
from tests.transport.native.running import TIMEOUT_SECONDS, Running


def until(is_so: Callable[[], bool]) -> float:
    """Wait until something is so, asking again and again; return how long it took."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() < began + TIMEOUT_SECONDS, "it never became so"
    return time.monotonic() - began


def members(server: Running) -> list[str]:
    return server.inside(lambda: list(server.broker.groups.get(GroupId("g")).members))


def join(raw: Raw, grace_ms: int, name: str = "raw") -> str:
    options: dict[str, str | int | bool] = {"disconnect_grace_ms": grace_ms}
    header = group_calls.JoinGroup("g", name, ["orders"], options=options)
    raw.send(Operation.JOIN_GROUP, header)
    return raw.reply(group_calls.Membership).member_id


def beat(raw: Raw, member: str) -> None:
    raw.send(Operation.HEARTBEAT, group_calls.Heartbeat("g", member, None))
    raw.reply(group_calls.MemberAssignment)


@pytest.fixture
def real(tmp_path: Path) -> Running:
    return Running(tmp_path / "data")


def test_a_closed_connection_ends_a_membership(real: Running) -> None:
    """After the grace, not before it, by a timer and not by the sweep of every second."""
    with real as server, server.connect() as other:
        other.create()
        with server.connect() as raw:
            join(raw, 300)
            assert len(members(server)) == 1
        waited_s = until(lambda: not members(server))

        assert waited_s > 0.25


def test_no_grace_is_at_once(real: Running) -> None:
    """A grace of 0 is for those who never reconnect."""
    with real as server, server.connect() as other:
        other.create()
        stays = join(other, 0)
        with server.connect() as raw:
            join(raw, 0, "gone")
        until(lambda: members(server) == [stays])


def test_both_connections_must_end(real: Running) -> None:
    """Joined on one, heard on the other: whichever is left stands for the member."""
    with real as server, server.connect() as other:
        other.create()
        with server.connect() as second:
            with server.connect() as first:
                member = join(first, 0)
                beat(second, member)
            # The end of the first has been seen when the broker has one connection less.
            until(lambda: len(server.native._connections) == 2)  # noqa: SLF001 - nothing else tells
            assert members(server) == [member]
            beat(second, member)
        until(lambda: not members(server))


def test_a_leave_before_the_end_is_the_end(real: Running) -> None:
    """What follows it is no news for the group."""
    with real as server, server.connect() as other:
        other.create()
        stays = join(other, 0)
        with server.connect() as raw:
            member = join(raw, 0, "leaves")
            raw.send(Operation.LEAVE_GROUP, group_calls.LeaveGroup("g", member))
            raw.reply(calls.Nothing)
            generation = server.inside(lambda: server.broker.groups.get(GroupId("g")).generation)
        until(lambda: len(server.native._connections) == 1)  # noqa: SLF001 - nothing else tells

        assert members(server) == [stays]
        assert generation == server.inside(
            lambda: server.broker.groups.get(GroupId("g")).generation
        )
