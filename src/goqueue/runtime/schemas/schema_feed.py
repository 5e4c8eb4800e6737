"""The schemas on every node of a cluster: one decides, the others follow what it tells.

Messages are judged where they are appended, so every node has the registry. Only what is committed
is told. A node that does not know a schema asks for the news before it refuses a message.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from goqueue.base.errors import GoQueueError, InvalidRequestError, NotCoordinatorError
from goqueue.base.ids import NodeId, PartitionId, TopicName, TopicPartition
from goqueue.base.units import SECOND_MS, MiB
from goqueue.core.schemas.events import Defined, Event
from goqueue.core.schemas.registry import Registry
from goqueue.runtime.forwarding import FORWARD_SECONDS, Forwarding
from goqueue.runtime.machine import Waiters
from goqueue.wire.calls import Call
from goqueue.wire.complaint import HEADER_FAULTS, complaint
from goqueue.wire.packet import Buffer
from goqueue.wire.peer_calls import PeerIdentity, PeerOperation
from goqueue.wire.schema_feed_calls import FollowSchemas, SchemaNews

FEED_BYTES: Final = 4 * MiB
"""About so many bytes of schemas are told at a time."""
EVENT_BYTES: Final = 200
"""What an event takes beside the text of a schema, generously."""
WAIT_MS: Final = 10 * SECOND_MS
"""How long news are waited for at a time."""
PAUSE_SECONDS: Final = 0.25
"""How long to wait where the node that decides does not answer, or is this one."""
HISTORY_MAX: Final = 20_000
"""A history that is longer, and twice what is there, begins anew."""

_decode_request: Final = msgspec.msgpack.Decoder(FollowSchemas).decode
_decode_reply: Final = msgspec.msgpack.Decoder(SchemaNews).decode
_decode_events: Final = msgspec.msgpack.Decoder(list[Event]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class FeedReply(NamedTuple):
    """The answer to a peer."""

    header: Call
    payload: tuple[Buffer, ...] = ()


class History:
    """What happened to a registry since this node decides about it."""

    def __init__(self, registry: Registry) -> None:
        self.name = secrets.token_hex(8)
        self.events: list[Event] = snapshot_of(registry)
        self.news = Waiters()
        self._begun_with = len(self.events)

    def __repr__(self) -> str:
        return f"<History {self.name}: {len(self.events)} events>"

    @property
    def is_long(self) -> bool:
        """Return True if those who follow had better begin anew."""
        return len(self.events) > HISTORY_MAX + 2 * self._begun_with

    def add(self, event: Event) -> None:
        """Take note of what happened."""
        self.events.append(event)
        self.news.wake()

    def piece(self, number: int) -> list[Event]:
        """Return some events from a number on, at least one if there are any."""
        found: list[Event] = []
        size = 0
        for event in self.events[number:]:
            size += EVENT_BYTES + (len(event.schema.text) if isinstance(event, Defined) else 0)
            if found and size > FEED_BYTES:
                break
            found.append(event)
        return found


def snapshot_of(registry: Registry) -> list[Event]:
    """Return the events that rebuild a registry."""
    return [
        *registry.root_snapshot(),
        *(registry.library.snapshot(one) for one in registry.library),
        *(
            event
            for subject in registry.subjects(with_deleted=True)
            for event in registry.subject_snapshot(subject.name)
        ),
    ]


class SchemaSource:
    """What a view needs of the schemas of its node."""

    history: History | None = None
    """What is told to others, where this node decides."""
    view: Registry | None = None
    """What others have told, where it does not."""

    async def settled(self) -> None:
        """Return when everything that can be seen is durable."""
        raise NotImplementedError


class SchemaFeed:
    """Tells other nodes of the schemas, and follows the one that decides about them."""

    def __init__(self, source: SchemaSource, forwarding: Forwarding, topic: str) -> None:
        self._source = source
        self._forwarding = forwarding
        self._place = TopicPartition(TopicName(topic), PartitionId(0))
        self._history, self._number = "", 0
        self._next = Registry()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SchemaFeed at {self._number} of {self._history or 'nothing'}>"

    def start(self) -> None:
        """Begin to follow, in the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Following.

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(GoQueueError):
                node = self._forwarding.leader(self._place)
                if not self._forwarding.is_here(node):
                    await self._ask(node, WAIT_MS)
                    continue
            await asyncio.sleep(PAUSE_SECONDS)

    async def refresh(self) -> None:
        """Return when everything is known that the deciding node knew when this was asked."""
        if self._source.history is not None:
            return

        async def ask(node: NodeId) -> None:
            if not self._forwarding.is_here(node):
                await self._ask(node, 0)

        await self._forwarding.find(lambda: self._forwarding.leader(self._place), ask)

    async def _ask(self, node: NodeId, wait_ms: int) -> None:
        """Ask for news once, and for the rest of them where they come in pieces."""
        is_whole = False
        while not is_whole:
            call = FollowSchemas(self._history, self._number, wait_ms)
            packet = await self._forwarding.topology.request(
                node,
                PeerOperation.FOLLOW_SCHEMAS,
                call,
                timeout_s=wait_ms / SECOND_MS + FORWARD_SECONDS,
            )
            news, events = _decode_reply(packet.header), _decode_events(packet.payload)
            is_whole = self._take(news, events)

    def _take(self, news: SchemaNews, events: Sequence[Event]) -> bool:
        """Apply news that continue what is known; return whether nothing is missing."""
        if news.history != self._history and news.number == 0:
            self._history, self._number, self._next = news.history, 0, Registry()
        if news.history != self._history or news.number > self._number:
            # An answer to an earlier question, which another one has overtaken.
            return False
        for event in events[self._number - news.number :]:
            self._next.apply(event)
            self._number += 1
        is_whole = self._number >= news.total
        if is_whole:
            self._source.view = self._next
        return is_whole

    # Telling.

    def handlers(
        self,
    ) -> Mapping[PeerOperation, Callable[[PeerIdentity, Buffer, memoryview], Awaitable[FeedReply]]]:
        """Return what peers may ask."""
        return {PeerOperation.FOLLOW_SCHEMAS: self.answer}

    async def answer(self, _: PeerIdentity, header: Buffer, __: memoryview) -> FeedReply:
        """Tell a peer what happened behind a place, waiting a while for news."""
        try:
            call = _decode_request(header)
        except HEADER_FAULTS as error:
            raise InvalidRequestError(f"follow: {complaint(FollowSchemas, error)}") from error
        history = self._deciding()
        is_known = call.history == history.name and call.number <= len(history.events)
        number = call.number if is_known else 0
        if number == len(history.events) and call.wait_ms and is_known:
            await self._wait(history, call.wait_ms)
        total = len(history.events)
        await self._source.settled()
        if self._deciding() is not history:
            raise NotCoordinatorError("the history of schemas began anew; ask again")
        events = history.piece(number)[: total - number]
        return FeedReply(SchemaNews(history.name, number, total), (_encode(events),))

    def _deciding(self) -> History:
        self._forwarding.topology.check_live()
        history = self._source.history
        if history is None:
            raise NotCoordinatorError("the schemas are not loaded here; ask again")
        return history

    async def _wait(self, history: History, wait_ms: int) -> None:
        news = history.news.watch()
        try:
            async with asyncio.timeout(wait_ms / SECOND_MS):
                await news
        except TimeoutError:
            pass
        finally:
            history.news.unwatch(news)
