"""Polls and settlements: their order, and replies that do not arrive."""

from pathlib import Path

import msgspec

from goqueue.base.units import MiB
from goqueue.core.record.message import Draft
from goqueue.core.record.row import encode_row
from goqueue.testing.clock import FakeClock
from goqueue.wire import group_calls
from goqueue.wire.calls import Call
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import (
    ACK,
    Next,
    Poll,
    Polled,
    PolledPart,
    Settle,
    Settled,
    SettlePart,
)
from tests.transport.native.raw import NOW_US, Raw, frames_of, packed
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


class OlderPart(PolledPart, frozen=True):
    """A part as earlier clients and brokers of protocol 1 have it: it ends with a list."""

    kept: list[int] = msgspec.field(default_factory=list)


class OlderPolled(Call, frozen=True):
    """A reply to a poll as they have it."""

    generation: int
    lease_ms: int
    parts: list[OlderPart]


class OlderPoll(Poll, frozen=True):
    """A poll as they have it: it ends with a flag."""

    keeps: bool = False


def test_an_older_client_is_sent_frames_like_everybody(tmp_path: Path) -> None:
    """It offers to keep frames, is not taken up on it, and finds none named."""
    with Running(tmp_path / "data", clock=FakeClock()) as server, server.connect() as raw:
        raw.create()
        assert raw.offer(frames_of(b"a", b"b"))[1] == ""
        join_by_key = group_calls.JoinGroup("g", "raw", ["orders"], options={"ordering": "key"})
        raw.send(Operation.JOIN_GROUP, join_by_key)
        member = raw.reply(group_calls.Membership).member_id
        raw.send(Operation.POLL, OlderPoll("g", member, 0, MESSAGES, 32 * MiB, WAIT_MS, keeps=True))
        (part,) = raw.reply(OlderPolled).parts

        assert part.kept == []
        assert part.size > 0


def test_an_older_broker_is_understood() -> None:
    """It is not asked to name frames, so the last field of a part is empty, and is ignored."""
    asked = msgspec.msgpack.encode(Poll("g", "m", 0, 1, 1, 1))
    part = OlderPart("orders", 0, 100, 7, [0, 2])
    answer = msgspec.msgpack.encode(OlderPolled(1, 30_000, [part]))

    assert msgspec.msgpack.decode(asked, type=OlderPoll).keeps is False
    assert msgspec.msgpack.decode(answer, type=Polled).parts == [
        PolledPart("orders", 0, 100, 7, [0, 2])
    ]


def settle(part: Polled, *, verb: str = ACK) -> Settle:
    (one,) = part.parts
    return Settle("g", "", [SettlePart(one.topic, one.partition, one.nonce, verb, one.order)])


def test_settlements_are_answered_without_waiting_for_polls(tmp_path: Path) -> None:
    """What was settled is told while a poll waits; what was settled before is refused."""
    with Running(tmp_path / "data", clock=FakeClock()) as server, server.connect() as raw:
        raw.create()
        assert raw.offer(frames_of(b"a", b"b"))[1] == ""
        member = join(raw)
        ask(raw, member)
        polled = raw.reply(Polled)
        ask(raw, member)
        raw.send(Operation.SETTLE, settle(polled))
        assert raw.reply(Settled).parts[0].refused == []
        raw.send(Operation.SETTLE, settle(polled))
        refused = raw.reply(Settled).parts[0].refused
        assert [one.failure.code for one in refused] == ["stale_receipt"] * 2


def test_a_settlement_that_makes_no_sense_is_refused_and_the_connection_stays(
    tmp_path: Path,
) -> None:
    """As every other request, although it is carried out as soon as it is there."""
    with Running(tmp_path / "data", clock=FakeClock()) as server, server.connect() as raw:
        raw.create()
        join(raw)
        part = SettlePart("orders", 0, 1, "eat", [0, 1])
        raw.send(Operation.SETTLE, Settle("g", "", [part]))
        assert raw.refusal().code == "invalid_request"
        raw.send(Operation.SETTLE, b"\xc1")
        assert raw.refusal().code == "invalid_request"
        raw.send(Operation.SETTLE, Settle("nobody", "", [part]))
        assert raw.refusal().code in ("invalid_request", "group_not_found")
        raw.ping()


def test_a_settlement_goes_before_nothing_that_came_earlier(tmp_path: Path) -> None:
    """Requests start in the order they came, those that need no task among them."""
    with Running(tmp_path / "data", clock=FakeClock()) as server, server.connect() as raw:
        raw.create()
        assert raw.offer(frames_of(b"a"))[1] == ""
        member = join(raw)
        ask(raw, member)
        polled = raw.reply(Polled)
        leave = packed(Operation.LEAVE_GROUP, group_calls.LeaveGroup("g", member), correlation=8)
        raw.write(leave + packed(Operation.SETTLE, settle(polled), correlation=9))

        packets = [raw.receive(), raw.receive()]
        (answer,) = [one for one in packets if one is not None and one.correlation == 9]
        outcome = msgspec.msgpack.decode(answer.header, type=Settled)

        # Leaving gave the message back, so that it was not there to be settled.
        assert len(outcome.parts[0].refused) == 1


def take_next(member: str, *parts: SettlePart, wait_ms: int = WAIT_MS) -> Next:
    return Next("g", member, 0, 1, 32 * MiB, wait_ms, list(parts))


def ack_of(polled: Polled) -> SettlePart:
    return settle(polled).parts[0]


def test_the_next_message_comes_with_the_answer_to_the_ack(tmp_path: Path) -> None:
    """One request for each message; who settles is answered at once, whatever the wait."""
    with Running(tmp_path / "data", clock=FakeClock()) as server, server.connect() as raw:
        raw.create()
        assert raw.offer(frames_of(b"a", b"b", b"c", b"d", b"e"))[1] == ""
        member = join(raw)
        raw.send(Operation.NEXT, take_next(member))
        replies = [raw.reply(Polled)]
        while replies[-1].parts:
            raw.send(Operation.NEXT, take_next(member, ack_of(replies[-1])))
            replies.append(raw.reply(Polled))

        assert [part.order for reply in replies for part in reply.parts] == [
            [offset, offset + 1] for offset in range(5)
        ]
        assert [len(reply.settled) for reply in replies] == [0, 1, 1, 1, 1, 1]
        assert not any(part.refused for reply in replies for part in reply.settled)
        # Settled once more it is refused, and the answer comes all the same.
        raw.send(Operation.NEXT, take_next(member, ack_of(replies[0])))
        (again,) = raw.reply(Polled).settled
        assert [one.failure.code for one in again.refused] == ["stale_receipt"]


def test_messages_are_kept_by_who_is_no_member(tmp_path: Path) -> None:
    """A stranger's request is refused as a whole: nothing is settled."""
    with Running(tmp_path / "data", clock=FakeClock()) as server, server.connect() as raw:
        raw.create()
        assert raw.offer(frames_of(b"a"))[1] == ""
        member = join(raw)
        raw.send(Operation.NEXT, take_next(member))
        polled = raw.reply(Polled)
        raw.send(Operation.NEXT, take_next("stranger", ack_of(polled)))
        assert raw.refusal().code == "unknown_member"
        raw.send(Operation.SETTLE, settle(polled))

        assert raw.reply(Settled).parts[0].refused == []


def test_polls_that_wait_are_served_in_the_order_they_came(tmp_path: Path) -> None:
    """By the publish that brings their messages; who finds nothing waits on."""
    with Running(tmp_path / "data", clock=FakeClock()) as server, server.connect() as other:
        other.create()
        with server.connect() as first, server.connect() as second, server.connect() as third:
            members = []
            for raw in (first, second, third):
                join_shared = group_calls.JoinGroup(
                    "g", "raw", ["orders"], options={"mode": "shared"}
                )
                raw.send(Operation.JOIN_GROUP, join_shared)
                members.append(raw.reply(group_calls.Membership).member_id)
            for raw, member in zip((first, second, third), members, strict=True):
                raw.send(Operation.NEXT, take_next(member))
                raw.ping()
            for _ in range(2):
                assert other.offer(frames_of(b"a"))[1] == ""

            assert first.reply(Polled).parts[0].order == [0, 1]
            assert second.reply(Polled).parts[0].order == [1, 2]
            third.ping()
            assert other.offer(frames_of(b"b"))[1] == ""
            assert third.reply(Polled).parts[0].order == [2, 3]


def test_a_poll_that_waits_holds_nothing_when_its_client_goes(tmp_path: Path) -> None:
    """What comes afterwards is for others, at once."""
    with Running(tmp_path / "data", clock=FakeClock()) as server, server.connect() as other:
        other.create()
        with server.connect() as gone:
            member = join(gone)
            gone.send(Operation.POLL, Poll("g", member, 0, 1, MiB, WAIT_MS))
            gone.ping()
        assert other.offer(frames_of(b"a"))[1] == ""
        other.send(Operation.NEXT, take_next(member))

        assert other.reply(Polled).parts[0].order == [0, 1]
