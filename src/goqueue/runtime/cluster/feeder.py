"""Sending followers what this node leads: a session for each node that fetches here.

What is appended is sent from the page cache before it is synced here: all disks work at once.
"""

import asyncio
from typing import Final, Protocol

from goqueue.base.errors import ForbiddenError, GoQueueError, InvalidRequestError
from goqueue.base.ids import Epoch, NodeEpoch, NodeId, Offset
from goqueue.base.units import SECOND_MS
from goqueue.core.record.frame import read_header
from goqueue.core.record.hole import encode_holes, hole_rows
from goqueue.core.replication.epochs import NO_EPOCH
from goqueue.core.replication.feed import (
    FeedPlan,
    FeedSession,
    FeedShare,
    RequestFate,
    unknown_session,
)
from goqueue.core.replication.leader import GroupLeader
from goqueue.core.replication.replica import (
    FetchAnswer,
    FetchOutcome,
    FetchPosition,
    LogId,
    LogKey,
)
from goqueue.core.replication.session import SessionRequest
from goqueue.core.replication.throttle import TokenBucket
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.links import PeerReply
from goqueue.runtime.cluster.repairs import Repairs
from goqueue.runtime.cluster.replica_group import ReplicaGroup
from goqueue.runtime.log.partition import Partition
from goqueue.storage.log_notes import Gap
from goqueue.storage.log_reader import Piece
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity
from goqueue.wire.replica_calls import decode_fetch, fetched_of, request_of

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


class Feeds:
    """All followers that fetch from this node."""

    def __init__(self, host: FeedHost, *, throttle: TokenBucket | None = None) -> None:
        self._host = host
        self._throttle = throttle
        self._feeds: dict[NodeId, FollowerFeed] = {}
        self.heard: dict[NodeId, int] = {}
        """When the last request of each node came."""

    def __repr__(self) -> str:
        return f"<Feeds of {', '.join(self._feeds)}>"

    async def fetch(self, peer: PeerIdentity, header: Buffer, _: memoryview) -> PeerReply:
        """Answer a request of a follower when there is something to say."""
        call = decode_fetch(memoryview(header))
        node, node_epoch = NodeId(call.node), NodeEpoch(call.node_epoch)
        if node != peer.node:
            raise ForbiddenError(f"{peer.node} cannot fetch as {node}")
        request = request_of(call)
        if not self._host.is_known(node, node_epoch):
            return PeerReply(fetched_of(unknown_session(request), {}))
        self.heard[node] = self._host.now_ms()
        feed = self._feeds.get(node)
        if request.sequence == 0 and (feed is None or request.session > feed.session.number):
            if feed is not None:
                feed.close()
            session = FeedSession(request.session)
            feed = FollowerFeed(node, node_epoch, session, self._host, throttle=self._throttle)
            self._feeds[node] = feed
        fate = RequestFate.UNKNOWN if feed is None else feed.take(request)
        if feed is None or fate is RequestFate.UNKNOWN:
            return PeerReply(fetched_of(unknown_session(request), {}))
        if fate is RequestFate.REPEATED:
            raise InvalidRequestError("this request of a session came before")
        return await feed.answer(request.sequence)

    def log_grew(self, key: LogKey) -> None:
        """Send what is new of a log."""
        for feed in self._feeds.values():
            feed.session.appended(key)
            feed.feed_soon()

    def watermark_moved(self, key: LogKey) -> None:
        """Let the next answers say where the high watermark and the start of a log are."""
        for feed in self._feeds.values():
            feed.session.moved(key)

    async def stop(self) -> None:
        """Answer nothing more."""
        for feed in self._feeds.values():
            await feed.stop()


class FollowerFeed:
    """The leader's end of the session of one follower node."""

    def __init__(
        self,
        node: NodeId,
        node_epoch: NodeEpoch,
        session: FeedSession,
        host: FeedHost,
        *,
        throttle: TokenBucket | None,
    ) -> None:
        self.session = session
        self._host = host
        self._throttle = throttle
        self._logs = _FedLogs(node, node_epoch, host)
        self._waiting: dict[int, asyncio.Future[PeerReply]] = {}
        self._task: asyncio.Task[None] | None = None
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<FollowerFeed: {self.session!r}>"

    def take(self, request: SessionRequest) -> RequestFate:
        """Take a request; what its positions say of followers is acted upon at once."""
        fate = self.session.take(request, self._logs, now_ms=self._host.now_ms())
        self._logs.perform()
        return fate

    async def answer(self, sequence: int) -> PeerReply:
        """Return the answer to a request that was taken, when it is due."""
        future: asyncio.Future[PeerReply] = asyncio.get_running_loop().create_future()
        self._waiting[sequence] = future
        self._feed()
        try:
            return await future
        finally:
            self._waiting.pop(sequence, None)

    def close(self) -> None:
        """End the session: another one has begun."""
        self._is_closed = True
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(InvalidRequestError("another session has begun"))

    async def stop(self) -> None:
        """End the session and what it does."""
        self.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Answering.

    def feed_soon(self) -> None:
        """Answer when everything that is about to be appended is there."""
        if self._soon is None and not self._is_closed:
            self._soon = asyncio.get_running_loop().call_soon(self._feed)

    def _feed(self) -> None:
        self._soon = None
        if self._task is not None or self._is_closed:
            return
        if self._is_due():
            self._task = asyncio.get_running_loop().create_task(self._answer_all())
        else:
            self._arm()

    def _is_due(self) -> bool:
        return self.session.is_due(now_ms=self._host.now_ms(), throttle=self._throttle)

    def _arm(self) -> None:
        """Come back when time alone makes an answer due."""
        now_ms = self._host.now_ms()
        due_ms = self.session.due_ms(now_ms=now_ms, throttle=self._throttle)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            delay_s = max(due_ms - now_ms, 1) / SECOND_MS
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._feed)

    async def _answer_all(self) -> None:
        try:
            while self._is_due() and not self._is_closed:
                plan = self.session.plan(
                    self._logs, now_ms=self._host.now_ms(), throttle=self._throttle
                )
                if plan is not None:
                    await self._answer_one(plan)
        except Exception:
            log.exception(LogEvent.FEED_CRASHED, session=repr(self.session))
            self.close()
        finally:
            self._task = None
            if not self._is_closed:
                self._feed()

    async def _answer_one(self, plan: FeedPlan) -> None:
        frames: dict[LogKey, tuple[Buffer, ...]] = {}
        reached: dict[LogKey, Offset] = {}
        for share in plan.shares:
            try:
                frames[share.key], reached[share.key] = await self._logs.read(share)
            except GoQueueError as error:
                log.warning(LogEvent.FEED_UNREADABLE, partition=str(share.key), error=error.message)
                self.session.refuse(share.key, _refusal(share.offset))
        answer = self.session.finish(plan, reached, self._logs)
        sizes: dict[LogKey, int] = {}
        payload: list[Buffer] = []
        for key, said in answer.parts:
            if said.end_offset > said.offset:
                sizes[key] = sum(map(len, frames[key]))
                payload += frames[key]
        future = self._waiting.get(plan.sequence)
        if future is not None and not future.done():
            future.set_result(PeerReply(fetched_of(answer, sizes), tuple(payload)))


class _FedLogs:
    """The logs of this node as one follower may fetch them."""

    def __init__(self, node: NodeId, node_epoch: NodeEpoch, host: FeedHost) -> None:
        self._node = node
        self._node_epoch = node_epoch
        self._host = host
        self._heard_of: dict[ReplicaGroup, None] = {}

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
            return _refusal(position.offset, position.epoch, position.last_epoch)
        self._heard_of[group] = None
        return leader.judge(
            self._node,
            key.log,
            position,
            node_epoch=self._node_epoch,
            now_ms=self._host.now_ms(),
        )

    def find(self, key: LogKey) -> "_LedLog | None":
        """Return a log, None if this node does not lead it any more."""
        group = self._host.find_group(key)
        leader = None if group is None else group.leader
        if leader is None or leader.is_resigned or key.log not in leader.logs:
            return None
        return _LedLog(leader, key.log, self._node)

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


class _LedLog:
    """One log that this node leads."""

    __slots__ = ("_follower", "_leader", "_log")

    def __init__(self, leader: GroupLeader, log_id: LogId, follower: NodeId) -> None:
        self._leader = leader
        self._log = log_id
        self._follower = follower

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

    @property
    def is_throttled(self) -> bool:
        """Whether the follower only catches up."""
        return not self._leader.is_in_sync(self._follower)

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


def _refusal(offset: Offset, epoch: Epoch = _FIRST, last_epoch: Epoch = NO_EPOCH) -> FetchAnswer:
    return FetchAnswer(
        outcome=FetchOutcome.UNKNOWN,
        epoch=epoch,
        offset=offset,
        last_epoch=last_epoch,
        end_offset=offset,
        high_watermark=_ZERO,
        start_offset=_ZERO,
    )
