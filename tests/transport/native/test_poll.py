"""Polls whose replies do not arrive: what was leased for them is ready again."""

from pathlib import Path

from goqueue.base.units import MiB
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.testing.clock import FakeClock
from goqueue.wire import group_calls
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import Poll, Polled
from tests.transport.native.raw import NOW_US, Raw
from tests.transport.native.running import Running

MESSAGES = 12
WAIT_MS = 10_000


def join(raw: Raw) -> str:
    raw.send(Operation.JOIN_GROUP, group_calls.JoinGroup("g", "raw", ["orders"]))
    return raw.reply(group_calls.Membership).member_id


def ask(raw: Raw, member: str) -> None:
    raw.send(Operation.POLL, Poll("g", member, 0, MESSAGES, 32 * MiB, WAIT_MS))


def test_what_was_leased_for_a_reply_that_never_left_is_ready_at_once(tmp_path: Path) -> None:
    """Nobody waits for the lease of a client that is gone; time stands still here."""
    with Running(tmp_path / "data", clock=FakeClock()) as server, server.connect() as other:
        other.create()
        frame = encode_row(Draft(value=bytes(MiB), timestamp_us=NOW_US))
        for _ in range(MESSAGES):
            assert other.offer(frame)[1] == ""
        with server.connect(receive_bytes=4_096) as deaf:
            member = join(deaf)
            ask(deaf, member)
            # The reply has begun, and there it ends.
            assert deaf.socket.recv(1)
        ask(other, member)

        assert [part.order for part in other.reply(Polled).parts] == [[0, MESSAGES]]
