"""Sending followers what this node leads: a session for each node that fetches here.

What is appended is sent from the page cache before it is synced here: all disks work at once.
"""

import asyncio
from collections import Counter
from typing import Final

from goqueue.base.errors import ForbiddenError, GoQueueError, InvalidRequestError
from goqueue.base.ids import NodeEpoch, NodeId, Offset, TopicPartition
from goqueue.base.units import SECOND_MS
from goqueue.core.cluster.move_rates import NOTHING, Copies
from goqueue.core.replication.feed import (
    FeedPlan,
    FeedSession,
    FeedShare,
    RequestFate,
    unknown_session,
)
from goqueue.core.replication.replica import (
    LogKey,
)
from goqueue.core.replication.session import SessionRequest
from goqueue.core.replication.throttle import TokenBucket
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.fed_logs import FedLogs, FeedHost, refusal_at
from goqueue.runtime.cluster.links import PeerReply
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity
from goqueue.wire.replica_calls import decode_fetch, fetched_of, request_of

BURSTS_PER_SECOND: Final = 10
"""A throttle that was not used for a while grants a tenth of a second at once."""

log = get_logger("goqueue.replicas")


class Feeds:
    """All followers that fetch from this node."""

    def __init__(self, host: FeedHost) -> None:
        self._host = host
        self._copies: Copies = NOTHING
        self._copied: Counter[TopicPartition] = Counter()
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
            feed = FollowerFeed(node, node_epoch, session, self._host, self._copied)
            feed.follow(self._copies)
            self._feeds[node] = feed
        fate = RequestFate.UNKNOWN if feed is None else feed.take(request)
        if feed is None or fate is RequestFate.UNKNOWN:
            return PeerReply(fetched_of(unknown_session(request), {}))
        if fate is RequestFate.REPEATED:
            raise InvalidRequestError("this request of a session came before")
        return await feed.answer(request.sequence)

    def follow(self, copies: Copies) -> None:
        """Send replicas that catch up no more than moves allow."""
        self._copies = copies
        for feed in self._feeds.values():
            feed.follow(copies)
        for place in [one for one in self._copied if one not in copies.sent]:
            del self._copied[place]

    def copied_bytes(self, place: TopicPartition) -> int:
        """Return how much was sent of a moving partition to replicas that catch up."""
        return self._copied[place]

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
        copied: Counter[TopicPartition],
    ) -> None:
        self.session = session
        self._node = node
        self._host = host
        self._copied = copied
        self._throttle: TokenBucket | None = None
        self._logs = FedLogs(node, node_epoch, host)
        self._waiting: dict[int, asyncio.Future[PeerReply]] = {}
        self._task: asyncio.Task[None] | None = None
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<FollowerFeed: {self.session!r}>"

    def follow(self, copies: Copies) -> None:
        """Send what catches up as fast as moves allow, and everything else at once."""
        rate, now_ms = copies.rates.get(self._node), self._host.now_ms()
        if rate is None:
            self._throttle = None
        elif self._throttle is None:
            burst = max(rate // BURSTS_PER_SECOND, 1)
            self._throttle = TokenBucket(bytes_per_second=rate, burst_bytes=burst, now_ms=now_ms)
        else:
            self._throttle.set_rate(rate, now_ms=now_ms)
        self._logs.throttled = {
            place for place, followers in copies.sent.items() if self._node in followers
        }
        if not self._is_closed:
            self.feed_soon()

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
                self._pay(share, sum(map(len, frames[share.key])))
            except GoQueueError as error:
                log.warning(LogEvent.FEED_UNREADABLE, partition=str(share.key), error=error.message)
                self.session.refuse(share.key, refusal_at(share.offset))
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

    def _pay(self, share: FeedShare, size: int) -> None:
        """Account for what was really sent of a share that was granted."""
        if share.key.group not in self._logs.throttled:
            return
        self._copied[share.key.group] += size
        if self._throttle is not None and share.is_granted:
            self._throttle.give_back(share.bytes_max - size)
