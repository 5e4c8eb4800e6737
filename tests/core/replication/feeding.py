"""What simulated nodes say to each other, and the logs of a leader as a follower may fetch them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from goqueue.base.ids import Epoch, NodeEpoch, NodeId, Offset, TopicPartition
from goqueue.core.replication.leader import GroupLeader
from goqueue.core.replication.replica import (
    FetchAnswer,
    FetchOutcome,
    FetchPosition,
    LogId,
    LogKey,
)
from goqueue.core.replication.session import SessionAnswer, SessionRequest
from goqueue.wire.replica_calls import (
    answer_of,
    decode_fetch,
    decode_fetched,
    encode_call,
    fetch_of,
    fetched_of,
    request_of,
)
from tests.core.replication.disk import Frame


@dataclass(frozen=True)
class GroupShape:
    """What is known of a replica group without the controller."""

    logs: tuple[LogId, ...]
    is_fsynced: bool


@dataclass(frozen=True)
class Fetching:
    """A request on its way."""

    node: NodeId
    node_epoch: NodeEpoch
    request: SessionRequest


@dataclass(frozen=True)
class Fed:
    """An answer on its way, with the frames it carries."""

    node: NodeId
    answer: SessionAnswer
    frames: dict[LogKey, list[Frame]]


class SimFeeder:
    """The logs of a node, as one follower may fetch them."""

    def __init__(
        self,
        leaders: Mapping[TopicPartition, GroupLeader],
        follower: NodeId,
        node_epoch: NodeEpoch,
        *,
        now_ms: int,
    ) -> None:
        self._leaders = leaders
        self._follower = follower
        self._node_epoch = node_epoch
        self._now_ms = now_ms

    def judge(self, key: LogKey, position: FetchPosition) -> FetchAnswer | None:
        leader = self._leaders.get(key.group)
        if leader is None:
            return FetchAnswer(
                outcome=FetchOutcome.UNKNOWN,
                epoch=position.epoch,
                offset=position.offset,
                last_epoch=position.last_epoch,
                end_offset=position.offset,
                high_watermark=Offset(0),
                start_offset=Offset(0),
            )
        return leader.judge(
            self._follower,
            key.log,
            position,
            node_epoch=self._node_epoch,
            now_ms=self._now_ms,
        )

    def find(self, key: LogKey) -> "SimFedLog | None":
        leader = self._leaders.get(key.group)
        return None if leader is None else SimFedLog(leader, key.log, self._follower)


@dataclass(frozen=True)
class SimFedLog:
    """One log that a node leads."""

    leader: GroupLeader
    log: LogId
    follower: NodeId

    @property
    def epoch(self) -> Epoch:
        return self.leader.epoch

    @property
    def start_offset(self) -> Offset:
        return self.leader.logs[self.log].start_offset

    @property
    def end_offset(self) -> Offset:
        return self.leader.logs[self.log].end_offset

    @property
    def is_throttled(self) -> bool:
        return not self.leader.is_in_sync(self.follower)

    def last_epoch(self, offset: Offset) -> Epoch:
        return self.leader.logs[self.log].epochs.last_epoch(offset)

    def answer(self, *, offset: Offset, last_epoch: Epoch, end_offset: Offset) -> FetchAnswer:
        return self.leader.answer(
            self.log, offset=offset, last_epoch=last_epoch, end_offset=end_offset
        )


def over_the_wire(said: Fetching | Fed) -> Fetching | Fed:
    """Return what arrives of a message as bytes; frames count one byte each."""
    if isinstance(said, Fetching):
        call = fetch_of(said.request, node=said.node, directory="disk", node_epoch=said.node_epoch)
        return replace(said, request=request_of(decode_fetch(encode_call(call))))
    sizes = {key: len(frames) for key, frames in said.frames.items()}
    fetched = fetched_of(said.answer, sizes)
    total = sum(news.size for news in fetched.news)
    return replace(
        said, answer=answer_of(decode_fetched(encode_call(fetched), payload_bytes=total))
    )
