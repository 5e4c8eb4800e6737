"""Fetching from one leader node: all logs that this node follows there, in one session.

Two requests are under way at a time. Their answers are performed in the order in which they came;
what goes wrong on the way begins the session again.
"""

import asyncio
from typing import Final, Protocol

from goqueue.base.errors import GoQueueError
from goqueue.base.ids import DirectoryId, NodeEpoch, NodeId
from goqueue.base.units import SECOND_MS
from goqueue.core.replication.replica import FetchAnswer, FetchPosition, LogKey
from goqueue.core.replication.session import (
    ANSWER_TIMEOUT_MS,
    FetchSession,
    SessionRequest,
)
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.links import Links
from goqueue.wire.packet import Packet
from goqueue.wire.peer_calls import PeerOperation
from goqueue.wire.replica_calls import answer_of, decode_fetched, fetch_of, key_of

UNREACHABLE_PAUSE_MS: Final = 100
"""Pause before a leader is asked again that could not be reached."""

UNWRITTEN_PAUSE_MS: Final = SECOND_MS
"""Pause before a log is fetched again of which something could not be written."""

_NOTHING: Final = memoryview(b"")

log = get_logger("goqueue.replicas")


class FetchHost(Protocol):
    """What fetching needs of its node."""

    @property
    def node(self) -> NodeId:
        """The name of this node."""
        ...

    @property
    def directory(self) -> DirectoryId:
        """The identity of its data directory."""
        ...

    @property
    def node_epoch(self) -> NodeEpoch | None:
        """The registration of this process."""
        ...

    def now_ms(self) -> int:
        """Return steady milliseconds."""
        ...

    def position(self, key: LogKey) -> FetchPosition | None:
        """Return what this node has of a log, None if it does not follow."""
        ...

    async def take(
        self, sender: NodeId, key: LogKey, answer: FetchAnswer, frames: memoryview
    ) -> None:
        """Do what a leader's answer asks for."""
        ...


class Fetcher:
    """The follower's end of the sessions with one leader node."""

    def __init__(
        self, leader: NodeId, links: Links, host: FetchHost, *, first_session: int
    ) -> None:
        self.leader = leader
        self._links = links
        self._host = host
        self._session = FetchSession(number=first_session)
        # Guards the order in which answers are performed.
        self._turn = asyncio.Lock()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_told = False
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<Fetcher from {self.leader}: {self._session!r}>"

    # What this node follows.

    def add(self, key: LogKey) -> None:
        """Fetch a log, or fetch it again because its epoch has changed."""
        self._session.add(key)
        self._talk_soon()

    def forget(self, key: LogKey) -> None:
        """Fetch a log no more."""
        self._session.forget(key)
        self._talk_soon()

    def touch(self, key: LogKey) -> None:
        """Report what this node has of a log."""
        self._session.touch(key)
        self._talk_soon()

    async def stop(self) -> None:
        """Ask for nothing more."""
        self._is_stopped = True
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Asking.

    def _talk_soon(self) -> None:
        """Ask when everything that is about to change has changed."""
        if self._soon is None and not self._is_stopped:
            self._soon = asyncio.get_running_loop().call_soon(self._talk)

    def _talk(self) -> None:
        self._soon = None
        node_epoch, now_ms = self._host.node_epoch, self._host.now_ms()
        if self._is_stopped or node_epoch is None:
            return
        self._session.tick(now_ms=now_ms)
        while request := self._session.next_request(self._position, now_ms=now_ms):
            task = asyncio.get_running_loop().create_task(self._ask(request, node_epoch))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        self._arm(now_ms)

    def _position(self, key: LogKey) -> FetchPosition:
        position = self._host.position(key)
        assert position is not None, "only what is followed is fetched"
        return position

    def _arm(self, now_ms: int) -> None:
        """Come back when time alone makes something due."""
        if self._timer is not None:
            self._timer.cancel()
        due_ms = self._session.due_ms(now_ms=now_ms)
        if due_ms is None:
            self._timer = None
            return
        delay_s = max(due_ms - now_ms, 1) / SECOND_MS
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._talk_soon)

    async def _ask(self, request: SessionRequest, node_epoch: NodeEpoch) -> None:
        host = self._host
        call = fetch_of(request, node=host.node, directory=host.directory, node_epoch=node_epoch)
        timeout_s = (request.wait_ms + ANSWER_TIMEOUT_MS) / SECOND_MS
        try:
            packet = await self._links.request(
                self.leader, PeerOperation.REPLICA_FETCH, call, timeout_s=timeout_s
            )
            async with self._turn:
                await self._take(packet)
        except GoQueueError as error:
            self._failed(request, error)
        self._talk_soon()

    def _failed(self, request: SessionRequest, error: GoQueueError) -> None:
        session = self._session
        if request.session != session.number:
            return
        session.reset()
        session.pause(until_ms=self._host.now_ms() + UNREACHABLE_PAUSE_MS)
        if not self._is_told:
            self._is_told = True
            log.warning(LogEvent.FETCH_FAILED, leader=self.leader, error=error.message)

    # Answers.

    async def _take(self, packet: Packet) -> None:
        payload = packet.payload
        fetched = decode_fetched(packet.header, payload_bytes=len(payload))
        self._is_told = False
        frames: dict[LogKey, memoryview] = {}
        position = 0
        for news in fetched.news:
            if news.size:
                frames[key_of(news.name)] = payload[position : position + news.size]
                position += news.size
        for key, part in self._session.take(answer_of(fetched), now_ms=self._host.now_ms()):
            try:
                await self._host.take(self.leader, key, part, frames.get(key, _NOTHING))
            except GoQueueError as error:
                self._unwritten(key, error)
            else:
                self._session.touch(key)

    def _unwritten(self, key: LogKey, error: GoQueueError) -> None:
        """Ask for a log again after a while: the disk is full, or it failed."""
        log.warning(
            LogEvent.REPLICA_NOT_WRITTEN,
            partition=str(key),
            error=error.message,
            retry_in_ms=UNWRITTEN_PAUSE_MS,
        )
        self._session.hold(key, until_ms=self._host.now_ms() + UNWRITTEN_PAUSE_MS)
