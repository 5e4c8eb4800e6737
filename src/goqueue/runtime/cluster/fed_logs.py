"""The logs that this node leads, as one follower may fetch them."""

from typing import Final, Protocol

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import NO_EPOCH, Epoch, NodeEpoch, NodeId, Offset, TopicPartition
from goqueue.core.record.frame import read_header
from goqueue.core.record.hole import encode_holes, hole_rows
from goqueue.core.replication.feed import FeedShare
from goqueue.core.replication.leader import GroupLeader
from goqueue.core.replication.replica import (
    FetchAnswer,
    FetchOutcome,
    FetchPosition,
    LogId,
    LogKey,
)
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.repairs import Repairs
from goqueue.runtime.cluster.replica_group import ReplicaGroup
from goqueue.runtime.log.partition import Partition
from goqueue.storage.log_notes import Gap
from goqueue.storage.log_reader import Piece
from goqueue.wire.packet import Buffer

_ZERO: Final = Offset(0)
_FIRST: Final = Epoch(0)

log = get_logger("goqueue.replicas")


class FeedHost(Protocol):
    """What feeding needs of its node."""

    @property
    def repairs(self) -> Repairs:
        """What repairs damaged logs of this node."""
        ...

    def now_ms(self) -> int:
        """Return steady milliseconds."""
        ...

    def find_group(self, key: LogKey) -> ReplicaGroup | None:
        """Return the replica group of a log on this node."""
        ...

    def is_known(self, node: NodeId, node_epoch: NodeEpoch) -> bool:
        """Return True if this is the process of a node that the controller knows."""
        ...


class FedLogs:
    """The logs of this node as one follower may fetch them."""

    def __init__(self, node: NodeId, node_epoch: NodeEpoch, host: FeedHost) -> None:
        self._node = node
        self._node_epoch = node_epoch
        self._host = host
        self._heard_of: dict[ReplicaGroup, None] = {}
        self.throttled: set[TopicPartition] = set()
        """What the follower gets by a reassignment, and has not caught up with."""

    def perform(self) -> None:
        """Do what leaders decided when they heard of positions."""
        groups, self._heard_of = self._heard_of, {}
        for group in groups:
            group.perform()

    def judge(self, key: LogKey, position: FetchPosition) -> FetchAnswer | None:
        """Take a position, or return what to say instead of messages."""
        group = self._host.find_group(key)
        leader = None if group is None else group.leader
        if group is None or leader is None or key.log not in leader.logs:
            return refusal_at(position.offset, position.epoch, position.last_epoch)
        self._heard_of[group] = None
        return leader.judge(
            self._node,
            key.log,
            position,
            node_epoch=self._node_epoch,
            now_ms=self._host.now_ms(),
        )

    def find(self, key: LogKey) -> "LedLog | None":
        """Return a log, None if this node does not lead it any more."""
        group = self._host.find_group(key)
        leader = None if group is None else group.leader
        if leader is None or leader.is_resigned or key.log not in leader.logs:
            return None
        is_throttled = key.group in self.throttled and not leader.is_in_sync(self._node)
        return LedLog(leader, key.log, is_throttled=is_throttled)

    async def read(self, share: FeedShare) -> tuple[tuple[Buffer, ...], Offset]:
        """Return frames of a log as they lie there, and the offset behind them."""
        group = self._host.find_group(share.key)
        partition = None if group is None else group.logs[share.key.log].partition
        if partition is None:
            raise InvalidRequestError(f"{share.key} is not here any more")
        piece = await partition.read(
            share.offset,
            end_offset=partition.log.end_offset,
            bytes_max=share.bytes_max,
            is_copy=True,
        )
        if piece.gaps:
            return self._pass_over(share.key, piece.gaps[0], partition)
        return _aligned(piece, share.offset), piece.next_offset

    def _pass_over(
        self, key: LogKey, gap: Gap, partition: Partition
    ) -> tuple[tuple[Buffer, ...], Offset]:
        """Return holes for messages that no replica has, or raise while one may have them.

        Without them no other replica could ever be in sync again.
        """
        is_committed = gap.end_offset <= partition.committed_offset
        if not is_committed or not self._host.repairs.is_lost(key, gap):
            raise InvalidRequestError(f"{key} is damaged at offset {gap.start_offset}")
        log.error(LogEvent.MESSAGES_PASSED_OVER, partition=str(key), offsets=list(gap))
        holes = [hole for _, _, hole in encode_holes(gap.start_offset, gap.end_offset)]
        return tuple(holes), gap.end_offset


class LedLog:
    """One log that this node leads."""

    __slots__ = ("_leader", "_log", "is_throttled")

    def __init__(self, leader: GroupLeader, log_id: LogId, *, is_throttled: bool) -> None:
        self._leader = leader
        self._log = log_id
        self.is_throttled = is_throttled
        """Whether the follower only catches up, by a reassignment."""

    @property
    def epoch(self) -> Epoch:
        """The epoch it is led in."""
        return self._leader.epoch

    @property
    def start_offset(self) -> Offset:
        """The offset of the first message that retention has left."""
        return self._leader.logs[self._log].start_offset

    @property
    def end_offset(self) -> Offset:
        """Behind the last message, synced or not."""
        return self._leader.logs[self._log].end_offset

    def last_epoch(self, offset: Offset) -> Epoch:
        """Return the epoch of the message before an offset."""
        return self._leader.logs[self._log].epochs.last_epoch(offset)

    def answer(self, *, offset: Offset, last_epoch: Epoch, end_offset: Offset) -> FetchAnswer:
        """Return what to say with a range of messages."""
        return self._leader.answer(
            self._log, offset=offset, last_epoch=last_epoch, end_offset=end_offset
        )


def _aligned(piece: Piece, offset: Offset) -> tuple[Buffer, ...]:
    """Return frames that begin at an offset.

    Compaction puts one hole in the place of several frames. A follower that had some of these goes
    on in the middle of it, and gets the rest of the hole.
    """
    header = read_header(piece.frames)
    if header.offset >= offset:
        return (piece.frames,)
    if not header.is_hole:
        raise InvalidRequestError(f"offset {offset} lies inside a frame")
    frame = piece.frames[: header.size]
    end = Offset(header.offset + hole_rows(header, frame[-header.value_size :]))
    rest = [hole for _, _, hole in encode_holes(offset, end)]
    return (*rest, piece.frames[header.size :])


def refusal_at(offset: Offset, epoch: Epoch = _FIRST, last_epoch: Epoch = NO_EPOCH) -> FetchAnswer:
    """Return what to say of a log of which nothing can be had here now."""
    return FetchAnswer(
        outcome=FetchOutcome.UNKNOWN,
        epoch=epoch,
        offset=offset,
        last_epoch=last_epoch,
        end_offset=offset,
        high_watermark=_ZERO,
        start_offset=_ZERO,
    )
