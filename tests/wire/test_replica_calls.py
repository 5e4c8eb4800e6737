"""What nodes say about replicas comes back as it was said, and nothing else is believed."""

from random import Random
from typing import Any

import msgspec
import pytest

from goqueue.base.cluster_limits import (
    NODE_ID_CHARACTERS_MAX,
    REPLICA_LOGS_MAX,
    REPLICA_PARTS_MAX,
    REPLICAS_MAX,
)
from goqueue.base.errors import ProtocolError
from goqueue.base.ids import (
    Epoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionId,
    TopicName,
    TopicPartition,
)
from goqueue.base.limits import (
    FETCH_BYTES_MAX,
    FETCH_WAIT_MS_MAX,
    PARTITIONS_MAX,
    REQUEST_HEADER_BYTES_MAX,
)
from goqueue.core.replication.epochs import EpochEnd, EpochStart
from goqueue.core.replication.leader import ProposeIsr
from goqueue.core.replication.replica import (
    DATA_LOG,
    STATE_LOG,
    AlterOutcome,
    FetchAnswer,
    FetchOutcome,
    FetchPosition,
    IsrAnswer,
    IsrMember,
    LogKey,
    ReplicaSet,
)
from goqueue.core.replication.session import SessionAnswer, SessionRequest
from goqueue.wire import replica_calls as wire

GROUP = TopicPartition(TopicName("orders"), PartitionId(3))
KEY = LogKey(GROUP, DATA_LOG)
POSITION = FetchPosition(
    epoch=Epoch(4), offset=Offset(20), last_epoch=Epoch(3), durable_offset=Offset(18)
)
REQUEST = SessionRequest(
    session=7,
    sequence=2,
    answered=-1,
    parts=((KEY, POSITION),),
    forgotten=(LogKey(GROUP, STATE_LOG),),
    bytes_max=1_000,
    wait_ms=500,
)
NEWS = FetchAnswer(
    outcome=FetchOutcome.OK,
    epoch=Epoch(4),
    offset=Offset(20),
    last_epoch=Epoch(3),
    end_offset=Offset(25),
    high_watermark=Offset(22),
    start_offset=Offset(5),
    epochs=(EpochStart(Epoch(3), Offset(20)), EpochStart(Epoch(4), Offset(23))),
)
DIVERGING = FetchAnswer(
    outcome=FetchOutcome.DIVERGING,
    epoch=Epoch(4),
    offset=Offset(20),
    last_epoch=Epoch(3),
    end_offset=Offset(20),
    high_watermark=Offset(22),
    start_offset=Offset(5),
    diverging=EpochEnd(Epoch(2), Offset(11)),
)
STATE = ReplicaSet(
    epoch=Epoch(4),
    partition_epoch=PartitionEpoch(9),
    leader=NodeId("a"),
    replicas=(NodeId("a"), NodeId("b")),
    isr=(NodeId("a"),),
    min_insync=1,
    adding=(NodeId("b"),),
)


def fetch_bytes() -> bytes:
    call = wire.fetch_of(REQUEST, node=NodeId("b"), directory="d-1", node_epoch=NodeEpoch(6))
    return wire.encode_call(call)


def fetched_bytes() -> bytes:
    answer = SessionAnswer(
        session=7, sequence=2, parts=((KEY, NEWS), (LogKey(GROUP, STATE_LOG), DIVERGING))
    )
    return wire.encode_call(wire.fetched_of(answer, {KEY: 100}))


def test_a_fetch_comes_back() -> None:
    """With every field."""
    call = wire.decode_fetch(fetch_bytes())

    assert (call.node, call.directory, call.node_epoch) == ("b", "d-1", 6)
    assert wire.request_of(call) == REQUEST


def test_an_answer_comes_back() -> None:
    """With messages, and with a divergence."""
    answer = wire.answer_of(wire.decode_fetched(fetched_bytes(), payload_bytes=100))

    assert answer.parts == ((KEY, NEWS), (LogKey(GROUP, STATE_LOG), DIVERGING))


def test_proposals_and_their_answers_come_back() -> None:
    """Members that were not heard of have no node_epoch."""
    proposal = ProposeIsr(
        epoch=Epoch(4),
        partition_epoch=PartitionEpoch(9),
        isr=(IsrMember(NodeId("a"), None), IsrMember(NodeId("b"), NodeEpoch(6))),
    )
    sent = wire.AlterPartition("a", 5, [wire.change_of(GROUP, proposal)])
    answer = IsrAnswer(outcome=AlterOutcome.STALE, state=STATE)
    answered = wire.AlteredPartitions([wire.changed_of(GROUP, answer)])

    (change,) = wire.decode_alter(wire.encode_call(sent)).changes
    assert wire.proposal_of(change) == (GROUP, proposal)
    (changed,) = wire.decode_altered(wire.encode_call(answered)).changes
    assert wire.isr_answer_of(changed) == (GROUP, answer)


def test_a_later_version_may_say_more() -> None:
    """Fields at the end that this one does not know are passed over."""
    more = msgspec.msgpack.decode(fetch_bytes())
    more.append({"from": "the future"})

    assert wire.request_of(wire.decode_fetch(msgspec.msgpack.encode(more))) == REQUEST


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((0,), "n" * (NODE_ID_CHARACTERS_MAX + 1)),
        ((0,), ""),
        ((2,), -1),
        ((5,), -2),
        ((6,), [[["t", 0, 0], 1, 1, 1, 1]] * (REPLICA_PARTS_MAX + 1)),
        ((6, 0, 0, 0), "t" * 250),
        ((6, 0, 0, 1), PARTITIONS_MAX),
        ((6, 0, 0, 2), REPLICA_LOGS_MAX),
        ((6, 0, 2), 2**62),
        ((6, 0, 3), -2),
        ((6, 0, 4), 21),
        ((8,), 0),
        ((8,), FETCH_BYTES_MAX + 1),
        ((9,), FETCH_WAIT_MS_MAX + 1),
    ],
)
def test_a_fetch_beyond_a_limit_is_refused(path: tuple[int, ...], value: object) -> None:
    """Before anything is done for it."""
    with pytest.raises(ProtocolError):
        wire.decode_fetch(_with(fetch_bytes(), path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((3,), [[["t", 0, 0], 3, 1, 1, 1, 1, 1, 1, [], None, 0]] * (REPLICA_PARTS_MAX + 1)),
        ((3, 0, 1), 99),
        ((3, 0, 5), 19),
        ((3, 0, 10), 99),
        ((3, 0, 10), -1),
        ((3, 0, 8), []),
        ((3, 0, 8), [[3, 21]]),
        ((3, 0, 8), [[3, 20], [3, 23]]),
        ((3, 0, 8), [[3, 20], [4, 25]]),
        ((3, 0, 8), [[3, 20], [4, 20]]),
        ((3, 0, 9), [1, 1]),
        ((3, 1, 9), None),
    ],
)
def test_an_answer_that_no_leader_gives_is_refused(path: tuple[int, ...], value: object) -> None:
    """It would be believed when a log is cut, or when epochs are noted."""
    with pytest.raises(ProtocolError):
        wire.decode_fetched(_with(fetched_bytes(), path, value), payload_bytes=100)


def test_the_sizes_of_an_answer_are_those_of_its_payload() -> None:
    """Not a byte more or less."""
    for size in (0, 99, 101, 2**40):
        with pytest.raises(ProtocolError):
            wire.decode_fetched(fetched_bytes(), payload_bytes=size)


def test_a_proposal_has_no_more_members_than_there_are_replicas() -> None:
    """And names at least one partition."""
    change = ["t", 0, 1, 1, [["n", 1]] * (REPLICAS_MAX + 1)]
    for raw in (["a", 1, [change]], ["a", 1, []]):
        with pytest.raises(ProtocolError):
            wire.decode_alter(msgspec.msgpack.encode(raw))
    with pytest.raises(ProtocolError):
        wire.decode_altered(b"\xc1")


def test_the_largest_fetch_fits_into_a_header() -> None:
    """With the longest names and numbers."""
    name = wire.ReplicaLogName("t" * 249, PARTITIONS_MAX - 1, REPLICA_LOGS_MAX - 1)
    top = 2**62 - 1
    parts = [wire.ReplicaPosition(name, top, top, top, top)] * REPLICA_PARTS_MAX
    call = wire.ReplicaFetch("n" * 64, "d" * 64, top, top, top, top, parts, [], 1, 1)

    assert len(wire.encode_call(call)) < REQUEST_HEADER_BYTES_MAX


def test_flipped_and_cut_bytes_are_refused_or_mean_something() -> None:
    """Nothing but ProtocolError is ever raised."""
    random = Random(5)
    for raw, decode in (
        (fetch_bytes(), wire.decode_fetch),
        (fetched_bytes(), lambda data: wire.decode_fetched(data, payload_bytes=100)),
    ):
        for _ in range(3_000):
            broken = bytearray(raw)
            for _ in range(random.randint(1, 4)):
                broken[random.randrange(len(broken))] = random.randrange(256)
            try:
                decode(bytes(broken[: random.randint(0, len(broken))]))
            except ProtocolError:
                continue


def _with(raw: bytes, path: tuple[int, ...], value: object) -> bytes:
    whole: Any = msgspec.msgpack.decode(raw)
    place = whole
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return msgspec.msgpack.encode(whole)
