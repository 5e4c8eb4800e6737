"""What the nodes of a cluster say to each other about replicas: fetches and changes of the ISR.

Structs travel as msgpack arrays: a field may be added at the end with a default, never removed.
Whatever is counted or measured has its limit here, and is refused beyond it before it is believed.
The frames of a reply are its payload, one log behind the other, each of the size named.
"""

from typing import Annotated, Final

import msgspec

from goqueue.base.cluster_limits import (
    LEADER_EPOCHS_MAX,
    NODE_ID_CHARACTERS_MAX,
    REPLICA_LOGS_MAX,
    REPLICA_PARTS_MAX,
    REPLICA_REQUESTS_MAX,
    REPLICAS_MAX,
)
from goqueue.base.errors import ProtocolError
from goqueue.base.ids import (
    NO_EPOCH,
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
    NAME_CHARACTERS_MAX,
    PARTITIONS_MAX,
)
from goqueue.core.replication.epochs import EpochEnd, EpochStart
from goqueue.core.replication.leader import ProposeIsr
from goqueue.core.replication.replica import (
    AlterOutcome,
    FetchAnswer,
    FetchOutcome,
    FetchPosition,
    IsrAnswer,
    IsrMember,
    LogId,
    LogKey,
    ReplicaSet,
)
from goqueue.core.replication.session import SessionAnswer, SessionRequest
from goqueue.wire.calls import Call

TopicText = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
NodeText = Annotated[str, msgspec.Meta(min_length=1, max_length=NODE_ID_CHARACTERS_MAX)]
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS_MAX)]
LogNumber = Annotated[int, msgspec.Meta(ge=0, lt=REPLICA_LOGS_MAX)]
Counter = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
EpochOrNone = Annotated[int, msgspec.Meta(ge=NO_EPOCH, lt=2**62)]
SequenceOrNone = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]
NodeTexts = Annotated[list[NodeText], msgspec.Meta(max_length=REPLICAS_MAX)]


class ReplicaLogName(Call, frozen=True):
    """One log of one replica group."""

    topic: TopicText
    partition: PartitionNumber
    log: LogNumber


class ReplicaPosition(Call, frozen=True):
    """Where a follower's copy of a log ends."""

    name: ReplicaLogName
    epoch: Counter
    offset: Counter
    last_epoch: EpochOrNone
    durable_offset: Counter


class ReplicaFetch(Call, frozen=True):
    """Ask the leader of some logs for what is new. ``node_epoch`` says which process asks."""

    node: NodeText
    directory: NodeText
    node_epoch: Counter
    session: Counter
    sequence: Counter
    answered: SequenceOrNone
    changed: Annotated[list[ReplicaPosition], msgspec.Meta(max_length=REPLICA_PARTS_MAX)]
    forgotten: Annotated[list[ReplicaLogName], msgspec.Meta(max_length=REPLICA_PARTS_MAX)]
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=FETCH_BYTES_MAX)]
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=FETCH_WAIT_MS_MAX)]
    requests_max: Annotated[int, msgspec.Meta(ge=1, le=REPLICA_REQUESTS_MAX)] = 2


class ReplicaNews(Call, frozen=True):
    """What a leader says of one log; so many bytes of frames are in the payload."""

    name: ReplicaLogName
    outcome: FetchOutcome
    epoch: Counter
    offset: Counter
    last_epoch: EpochOrNone
    end_offset: Counter
    high_watermark: Counter
    start_offset: Counter
    epochs: Annotated[list[tuple[Counter, Counter]], msgspec.Meta(max_length=LEADER_EPOCHS_MAX)]
    diverging: tuple[EpochOrNone, Counter] | None
    size: Annotated[int, msgspec.Meta(ge=0, le=2 * FETCH_BYTES_MAX)]


class ReplicaFetched(Call, frozen=True):
    """The answer to a fetch of a follower."""

    session: Counter
    sequence: Counter
    is_known: bool
    news: Annotated[list[ReplicaNews], msgspec.Meta(max_length=REPLICA_PARTS_MAX)]


class IsrChange(Call, frozen=True):
    """The replicas in sync that a leader proposes, each with the process it heard of, if it did."""

    topic: TopicText
    partition: PartitionNumber
    epoch: Counter
    partition_epoch: Counter
    isr: Annotated[list[tuple[NodeText, Counter | None]], msgspec.Meta(max_length=REPLICAS_MAX)]
    resigns: bool = False


class AlterPartition(Call, frozen=True):
    """Ask the controller to change the replicas in sync of partitions that a node leads."""

    node: NodeText
    node_epoch: Counter
    changes: Annotated[list[IsrChange], msgspec.Meta(min_length=1, max_length=REPLICA_PARTS_MAX)]


class IsrChanged(Call, frozen=True):
    """What became of a proposal, and the partition as it is now."""

    topic: TopicText
    partition: PartitionNumber
    outcome: AlterOutcome
    epoch: Counter
    partition_epoch: Counter
    leader: NodeText | None
    replicas: NodeTexts
    isr: NodeTexts
    min_insync: Annotated[int, msgspec.Meta(ge=1, le=REPLICAS_MAX)]
    adding: NodeTexts


class AlteredPartitions(Call, frozen=True):
    """The answers to all proposals of a request, in its order."""

    changes: Annotated[list[IsrChanged], msgspec.Meta(max_length=REPLICA_PARTS_MAX)]


_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_fetch: Final = msgspec.msgpack.Decoder(ReplicaFetch).decode
_decode_fetched: Final = msgspec.msgpack.Decoder(ReplicaFetched).decode
_decode_alter: Final = msgspec.msgpack.Decoder(AlterPartition).decode
_decode_altered: Final = msgspec.msgpack.Decoder(AlteredPartitions).decode


def encode_call(call: Call) -> bytes:
    """Return a header as bytes."""
    return _encode(call)


def decode_fetch(raw: bytes | memoryview) -> ReplicaFetch:
    """Return a fetch of a follower, or raise ProtocolError."""
    try:
        call = _decode_fetch(raw)
    except _UNREADABLE as error:
        raise ProtocolError(f"not a fetch of a replica: {error}") from error
    for position in call.changed:
        if position.durable_offset > position.offset:
            raise ProtocolError(f"{position.name} is durable beyond its end")
    return call


def decode_fetched(raw: bytes | memoryview, *, payload_bytes: int) -> ReplicaFetched:
    """Return the answer to a fetch whose frames take so many bytes, or raise ProtocolError."""
    try:
        call = _decode_fetched(raw)
    except _UNREADABLE as error:
        raise ProtocolError(f"not an answer to a replica: {error}") from error
    if sum(news.size for news in call.news) != payload_bytes:
        raise ProtocolError(f"the sizes of the answer do not add up to {payload_bytes} bytes")
    for news in call.news:
        _check_news(news)
    return call


def _check_news(news: ReplicaNews) -> None:
    """Refuse what no leader says: it would be believed when a log is cut."""
    if news.end_offset < news.offset or (news.size > 0) != (news.end_offset > news.offset):
        raise ProtocolError(f"{news.name}: {news.size} bytes for the offsets of the answer")
    if (news.diverging is not None) != (news.outcome is FetchOutcome.DIVERGING):
        raise ProtocolError(f"{news.name}: a divergence without its end, or an end without one")
    last = (NO_EPOCH, -1)
    for epoch, start in news.epochs:
        if epoch <= last[0] or start <= last[1] or not news.offset <= start < news.end_offset:
            raise ProtocolError(f"{news.name}: the epochs of the answer are out of order")
        last = (Epoch(epoch), start)
    if news.size and (not news.epochs or news.epochs[0][1] != news.offset):
        raise ProtocolError(f"{news.name}: the first message has no epoch")


def decode_alter(raw: bytes | memoryview) -> AlterPartition:
    """Return the proposals of a leader, or raise ProtocolError."""
    try:
        return _decode_alter(raw)
    except _UNREADABLE as error:
        raise ProtocolError(f"not a change of replicas: {error}") from error


def decode_altered(raw: bytes | memoryview) -> AlteredPartitions:
    """Return the controller's answers, or raise ProtocolError."""
    try:
        return _decode_altered(raw)
    except _UNREADABLE as error:
        raise ProtocolError(f"not an answer about replicas: {error}") from error


# Between the words of the core and those of the wire.


def name_of(key: LogKey) -> ReplicaLogName:
    """Return a log as it is named on the wire."""
    return ReplicaLogName(key.group.topic, key.group.partition, key.log)


def key_of(name: ReplicaLogName) -> LogKey:
    """Return the log that is named."""
    group = TopicPartition(TopicName(name.topic), PartitionId(name.partition))
    return LogKey(group, LogId(name.log))


def fetch_of(
    request: SessionRequest, *, node: NodeId, directory: str, node_epoch: NodeEpoch
) -> ReplicaFetch:
    """Return a request of a session as it is sent."""
    return ReplicaFetch(
        node,
        directory,
        node_epoch,
        request.session,
        request.sequence,
        request.answered,
        [
            ReplicaPosition(name_of(key), at.epoch, at.offset, at.last_epoch, at.durable_offset)
            for key, at in request.parts
        ],
        [name_of(key) for key in request.forgotten],
        request.bytes_max,
        request.wait_ms,
        request.requests_max,
    )


def request_of(call: ReplicaFetch) -> SessionRequest:
    """Return the request of a session that was sent."""
    return SessionRequest(
        session=call.session,
        sequence=call.sequence,
        answered=call.answered,
        parts=tuple((key_of(part.name), _position_of(part)) for part in call.changed),
        forgotten=tuple(key_of(name) for name in call.forgotten),
        bytes_max=call.bytes_max,
        wait_ms=call.wait_ms,
        requests_max=call.requests_max,
    )


def _position_of(part: ReplicaPosition) -> FetchPosition:
    return FetchPosition(
        epoch=Epoch(part.epoch),
        offset=Offset(part.offset),
        last_epoch=Epoch(part.last_epoch),
        durable_offset=Offset(part.durable_offset),
    )


def fetched_of(answer: SessionAnswer, sizes: dict[LogKey, int]) -> ReplicaFetched:
    """Return an answer of a session as it is sent, with the bytes of frames of each log."""
    news = [
        ReplicaNews(
            name_of(key),
            said.outcome,
            said.epoch,
            said.offset,
            said.last_epoch,
            said.end_offset,
            said.high_watermark,
            said.start_offset,
            [(start.epoch, start.start_offset) for start in said.epochs],
            None if said.diverging is None else (said.diverging.epoch, said.diverging.end_offset),
            sizes.get(key, 0) if said.end_offset > said.offset else 0,
        )
        for key, said in answer.parts
    ]
    return ReplicaFetched(answer.session, answer.sequence, answer.is_known, news)


def answer_of(call: ReplicaFetched) -> SessionAnswer:
    """Return the answer of a session that was sent."""
    return SessionAnswer(
        session=call.session,
        sequence=call.sequence,
        parts=tuple((key_of(news.name), _said(news)) for news in call.news),
        is_known=call.is_known,
    )


def _said(news: ReplicaNews) -> FetchAnswer:
    diverging = news.diverging
    return FetchAnswer(
        outcome=news.outcome,
        epoch=Epoch(news.epoch),
        offset=Offset(news.offset),
        last_epoch=Epoch(news.last_epoch),
        end_offset=Offset(news.end_offset),
        high_watermark=Offset(news.high_watermark),
        start_offset=Offset(news.start_offset),
        epochs=tuple(EpochStart(Epoch(epoch), Offset(start)) for epoch, start in news.epochs),
        diverging=None
        if diverging is None
        else EpochEnd(Epoch(diverging[0]), Offset(diverging[1])),
    )


def change_of(group: TopicPartition, proposal: ProposeIsr) -> IsrChange:
    """Return a proposal as it is sent."""
    return IsrChange(
        group.topic,
        group.partition,
        proposal.epoch,
        proposal.partition_epoch,
        [(member.node, member.node_epoch) for member in proposal.isr],
        proposal.resigns,
    )


def proposal_of(change: IsrChange) -> tuple[TopicPartition, ProposeIsr]:
    """Return a proposal that was sent."""
    members = tuple(
        IsrMember(NodeId(node), None if number is None else NodeEpoch(number))
        for node, number in change.isr
    )
    proposal = ProposeIsr(
        epoch=Epoch(change.epoch),
        partition_epoch=PartitionEpoch(change.partition_epoch),
        isr=members,
        resigns=change.resigns,
    )
    return TopicPartition(TopicName(change.topic), PartitionId(change.partition)), proposal


def changed_of(group: TopicPartition, answer: IsrAnswer) -> IsrChanged:
    """Return an answer of the controller as it is sent."""
    state = answer.state
    return IsrChanged(
        group.topic,
        group.partition,
        answer.outcome,
        state.epoch,
        state.partition_epoch,
        state.leader,
        list(state.replicas),
        list(state.isr),
        state.min_insync,
        list(state.adding),
    )


def isr_answer_of(changed: IsrChanged) -> tuple[TopicPartition, IsrAnswer]:
    """Return an answer of the controller that was sent."""
    state = ReplicaSet(
        epoch=Epoch(changed.epoch),
        partition_epoch=PartitionEpoch(changed.partition_epoch),
        leader=None if changed.leader is None else NodeId(changed.leader),
        replicas=tuple(map(NodeId, changed.replicas)),
        isr=tuple(map(NodeId, changed.isr)),
        min_insync=changed.min_insync,
        adding=tuple(map(NodeId, changed.adding)),
    )
    group = TopicPartition(TopicName(changed.topic), PartitionId(changed.partition))
    return group, IsrAnswer(outcome=changed.outcome, state=state)
