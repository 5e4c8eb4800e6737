"""Messages of the quorum survive the wire, and nonsense does not."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from goqueue.base.cluster_limits import RAFT_ENTRY_BYTES_MAX, RAFT_MESSAGE_BYTES_MAX, RAFT_NODES_MAX
from goqueue.base.errors import ProtocolError
from goqueue.core.raft.messages import (
    Append,
    AppendReply,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    LogIndex,
    Membership,
    PeerId,
    RaftMessage,
    ReadReply,
    ReadRequest,
    Snapshot,
    Term,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from goqueue.wire.raft_messages import decode_message, encode_message

ONE, TWO = PeerId(1), PeerId(2)
FIVE = LogIndex(5)
ENTRY = Entry(LogIndex(6), Term(3), EntryKind.DATA, b"data")
MEMBERS = Membership((ONE, TWO), (PeerId(3),), (PeerId(3),), ((PeerId(3), 7),))
BODIES = [
    VoteRequest(True, False, FIVE, Term(2), LogIndex(4), Term(1)),  # noqa: FBT003
    VoteReply(is_pre=True, is_granted=False),
    Append(FIVE, Term(2), LogIndex(4), (ENTRY,)),
    AppendReply(FIVE, is_rejected=True, hint_index=LogIndex(4), hint_term=Term(2), life=9),
    Heartbeat(FIVE, 4, 9),
    HeartbeatReply(4, life=9),
    InstallSnapshot(Snapshot(FIVE, Term(2), MEMBERS, b"state")),
    TimeoutNow(),
    ReadRequest(8),
    ReadReply(8, FIVE),
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_message_survives_the_wire(body: object) -> None:
    """Every kind of them."""
    message = RaftMessage(ONE, TWO, Term(3), body)  # type: ignore[arg-type]

    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize(
    "body",
    [
        Append(FIVE, Term(2), FIVE, (ENTRY, ENTRY)),
        Append(FIVE, Term(4), FIVE, (ENTRY,)),
        Append(LogIndex(4), Term(2), FIVE, (ENTRY,)),
        Append(FIVE, Term(2), FIVE, (Entry(LogIndex(6), Term(9), EntryKind.DATA, b""),)),
        Append(FIVE, Term(2), FIVE, (Entry(LogIndex(6), Term(3), EntryKind.CHANGE, b"?"),)),
        Append(LogIndex(-1), Term(2), FIVE),
        Append(FIVE, Term(2**63), FIVE),
        Append(
            FIVE,
            Term(2),
            FIVE,
            (Entry(LogIndex(6), Term(3), EntryKind.DATA, bytes(RAFT_ENTRY_BYTES_MAX + 1)),),
        ),
        InstallSnapshot(Snapshot(FIVE, Term(4), MEMBERS, b"")),
        InstallSnapshot(Snapshot(FIVE, Term(2), Membership((ONE,) * (RAFT_NODES_MAX + 1)), b"")),
        HeartbeatReply(-1),
    ],
)
def test_what_no_node_would_say_is_refused(body: object) -> None:
    """Before the stepper, which relies on it, sees it."""
    raw = msgspec.msgpack.encode(RaftMessage(ONE, TWO, Term(3), body))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError):
        decode_message(raw)


def test_a_message_without_a_sender_or_of_any_size_is_refused() -> None:
    """Its size before it is decoded."""
    for raw in (
        encode_message(RaftMessage(PeerId(0), TWO, Term(1), TimeoutNow())),
        bytes(RAFT_MESSAGE_BYTES_MAX + 1),
    ):
        with pytest.raises(ProtocolError):
            decode_message(raw)


@given(raw=some.binary(max_size=60), seed=some.integers(0, 2**32))
def test_bytes_of_a_stranger_are_a_message_or_refused(raw: bytes, seed: int) -> None:
    """Nothing else is ever raised, for noise and for good messages with noise in them."""
    random = Random(seed)
    good = bytearray(encode_message(RaftMessage(ONE, TWO, Term(3), random.choice(BODIES))))  # type: ignore[arg-type]
    good[random.randrange(len(good))] ^= 1 << random.randrange(8)
    for bytes_given in (raw, bytes(good)):
        try:
            message = decode_message(bytes_given)
        except ProtocolError:
            continue
        assert decode_message(encode_message(message)) == message
