"""One native connection: packets in, packets out, never more at once than its limits.

Requests start in the order they came. Reading stops while some wait to be started, while too many
reply bytes are unsent, or while the common budget has no room for the request that is arriving. A
slow client so slows itself only, and one that takes nothing at all is dropped.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, cast

import msgspec

from goqueue.base.caller import Transport, caller_at
from goqueue.base.errors import GoQueueError, InvalidRequestError, ProtocolError
from goqueue.base.limits import (
    CONNECTION_REQUESTS_MAX,
    CONNECTION_WRITE_BYTES_MAX,
    REQUEST_BUFFER_FREE_BYTES,
)
from goqueue.base.started import Started
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.service.service import Service
from goqueue.service.verb import NO_REPLY, Later, Reply, RequestContext, failure_of
from goqueue.transport.certificate import caller_of
from goqueue.transport.native.alarm import Alarm
from goqueue.transport.native.at_once import Outcome, begin_at_once
from goqueue.transport.native.budget import ByteBudget, ReplyRoom
from goqueue.transport.native.departure import Departure
from goqueue.transport.native.dispatch import Dispatch
from goqueue.transport.native.held_files import HeldFiles
from goqueue.transport.native.waits import LAST_REPLIES_SECONDS, end_waits, packed
from goqueue.transport.unsent import keep_little_unsent
from goqueue.wire.calls import Call
from goqueue.wire.packet import Buffer, Kind, Operation, Packet, PacketReader
from goqueue.wire.wrong_port import is_http_request, native_port_reply

HELLO_SECONDS_MAX: Final = 10.0
"""A connection that has not said hello by then is closed."""

REQUEST_SECONDS_MAX: Final = 30.0
"""A request that has begun to arrive must be whole by then."""

REQUEST_SECONDS_CROWDED: Final = 5.0
"""The same for the one that goes beyond the common memory while others wait for it."""

_AT_ONCE: Final = frozenset({Operation.POLL, Operation.SETTLE, Operation.NEXT})
"""Requests that mostly wait for nothing but a sync, and are begun without a task."""

STARTED_AT_ONCE: Final = 8
"""So many requests of one connection are started in one go, then others have their turn."""

_encode: Final = msgspec.msgpack.Encoder().encode
log = get_logger("goqueue.native")


class Connection(asyncio.Protocol):
    """Reads requests, starts them in order, writes each reply when it is there."""

    def __init__(
        self,
        dispatch: Dispatch,
        service: Service,
        *,
        requests: ByteBudget,
        replies: ByteBudget,
        opened: Callable[["Connection"], None],
        closed: Callable[["Connection"], None],
        http: Callable[[], str] = str,
    ) -> None:
        self._dispatch, self._service = dispatch, service
        self._requests, self._replies = requests, replies
        self._turns = service.turns
        self._opened, self._closed, self._http = opened, closed, http
        self._reader = PacketReader(first_bytes_max=REQUEST_BUFFER_FREE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._arrival = Alarm(self._too_slow)
        self._departure = Departure(lambda: replies.is_crowded, self._not_taken)
        self._backlog: deque[Packet] = deque()
        self._files = HeldFiles()
        self._tasks: dict[asyncio.Future[None], Packet | None] = {}
        self._answered_later = 0
        """Publishes without a task whose sync is not over."""
        self._all_answered = asyncio.Event()
        self._unstarted = 0
        """Tasks that have not begun: nothing that came behind them may go before them."""
        self._in_line = 0
        """Tasks that wait for their turn to read much: behind them no more are started."""
        self._arriving = 0
        self._is_greeted = self._is_starting = self._is_stopping = False
        self._is_waiting = self._has_turn = self._is_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._peer, self._is_local = "", False
        self._session = service.open(caller_at(Transport.NATIVE, None))
        """Whose requests these are; without a caller until the address is known."""

    def __repr__(self) -> str:
        return f"<Connection {self._peer}: {self._under_way} requests>"

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for hello."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=CONNECTION_WRITE_BYTES_MAX)
        keep_little_unsent(transport)
        # A peer that vanished without a word is found by the system, not kept forever.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer, own = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        self._peer = str(peer)
        self._session = self._service.connect(caller_of(transport, Transport.NATIVE))
        # Only what runs on this machine can have the same address as the broker.
        self._is_local = bool(peer and own and peer[0] == own[0])
        self._arrival.set(HELLO_SECONDS_MAX)
        self._opened(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Drop what was under way; a publish already appended stays appended."""
        self._transport = None
        self._arrival.stop()
        self._departure.stop()
        self._requests.leave(self._granted)
        self._requests.give_back(self._arriving + sum(packet.size for packet in self._backlog))
        self._arriving = 0
        self._backlog.clear()
        self._files.clear()
        for task in list(self._tasks):
            task.cancel()
        self._service.disconnect(self._session)
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        """Cut packets and start them."""
        try:
            packets = self._reader.feed(data)
        except ProtocolError as error:
            if not self._is_greeted and is_http_request(data) and self._transport is not None:
                self._transport.write(native_port_reply(self._http()))
                self.close()
                return
            self.refuse(error)
            return
        if len(packets) == 1 and self._begin_alone(packets[0]):
            return
        self._backlog.extend(packets)
        self._count(packets)
        self._start_some()
        self._watch_arrival(has_progress=bool(packets))
        self._pace()

    def pause_writing(self) -> None:
        """Read and start no more requests while the client does not take its replies."""
        self._writable.clear()
        assert self._transport is not None, "open"
        self._departure.watch(self._transport)
        self._pace()

    def resume_writing(self) -> None:
        """Go on reading."""
        self._departure.stop()
        self._writable.set()
        self._start_some()
        self._pace()

    # What the listener calls.

    async def drain(self) -> None:
        """Read no more; return when every request under way has been answered."""
        self._is_stopping = True
        self._pace()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        if self._answered_later:
            await self._all_answered.wait()

    def close(self) -> None:
        """End the connection when what was written has gone out."""
        if self._transport is not None:
            self._departure.watch(self._transport)
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def rejudge(self) -> None:
        """End what waits and is permitted no more; without a valid credential end the rest soon."""
        end_waits(self._dispatch, self._session, self._tasks, self._write_error)
        ended = self._session.end()
        if ended is not None:
            # A request that ended the credential of its own connection is answered before.
            asyncio.get_running_loop().call_later(LAST_REPLIES_SECONDS, self.refuse, ended)

    def refuse(self, error: GoQueueError) -> None:
        """Say why and end the connection: its stream cannot be trusted any more."""
        log.info(LogEvent.CONNECTION_REFUSED, peer=self._peer, code=error.code, error=error.message)
        self._write(0, 0, Kind.ERROR, _encode(failure_of(error)))
        self.close()

    # Requests.

    @property
    def _under_way(self) -> int:
        """Requests that were begun and are not answered."""
        return len(self._tasks) + self._answered_later

    def _may_begin(self, packet: Packet) -> bool:
        """Return True if a request needs no task to keep behind those that came before it."""
        return packet.kind == Kind.REQUEST and self._is_greeted and not self._unstarted

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _start_some(self) -> None:
        """Start the requests that wait, as many as may be under way at once."""
        started = 0
        while self._backlog and self._is_open and self._writable.is_set() and not self._in_line:
            # Nothing is looked at before hello has been answered.
            if self._under_way >= (CONNECTION_REQUESTS_MAX if self._is_greeted else 1):
                return
            if started == STARTED_AT_ONCE:
                self._start_more_soon()
                return
            started += 1
            packet = self._backlog.popleft()
            if packet.operation == Operation.PRODUCE and self._may_begin(packet):
                begun = self._begin_produce(packet)
                if begun is None:
                    self._requests.give_back(packet.size)
                if begun is not False:
                    continue
            under_way = self._begin(packet)
            if under_way is None:
                self._requests.give_back(packet.size)
                continue
            self._track(under_way, packet.size, packet)

    def _track(self, under_way: asyncio.Future[None], size: int, packet: Packet | None) -> None:
        self._tasks[under_way] = packet
        under_way.add_done_callback(partial(self._finished, size))

    def _start_more_soon(self) -> None:
        """Start the next requests when other connections had their turn."""
        if not self._is_starting:
            self._is_starting = True
            asyncio.get_running_loop().call_soon(self._start_more)

    def _start_more(self) -> None:
        self._is_starting = False
        self._start_some()
        self._pace()

    def _begin(self, packet: Packet) -> asyncio.Future[None] | None:
        """Start a request; return what ends when it has been answered, or None if it has been."""
        if packet.operation in _AT_ONCE and self._may_begin(packet):
            return self._begin_at_once(packet)
        is_request = packet.kind == Kind.REQUEST
        if not is_request or not (self._is_greeted or packet.operation == Operation.HELLO):
            expected = "the first request is hello" if is_request else "a client sends requests"
            self.refuse(ProtocolError(expected))
            return None
        self._unstarted += 1
        return asyncio.get_running_loop().create_task(self._serve(packet))

    def _begin_at_once(self, packet: Packet) -> asyncio.Future[None] | None:
        """Carry out a request in this step; without a task, unless it has to read from the disk."""
        room = ReplyRoom(self._replies, self._turns, self._until_turn)
        context = RequestContext(packet.payload, room, self._is_local)
        request = self._dispatch.begin(self._session, packet.operation, packet.header, context)
        begun = begin_at_once(request, partial(self._answer, packet, room))
        if isinstance(begun, Started):
            return asyncio.ensure_future(self._serve_rest(packet, room, begun))
        return begun

    def _answer(self, packet: Packet, room: ReplyRoom, outcome: Outcome) -> None:
        """Write a reply. Where the client does not read, its memory counts until it does."""
        if isinstance(outcome, Reply):
            self._reply(packet, outcome)
            if self._is_open and not self._writable.is_set():
                self._track(asyncio.ensure_future(self._until_taken(room, outcome)), 0, None)
                return
        elif outcome is not None:
            self._write_error(packet, outcome)
        room.release()

    @property
    def _is_calm(self) -> bool:
        """Return True if nothing has to be considered before a request that is there is begun."""
        is_held_up = self._backlog or self._in_line or self._reader.held or self._is_paused
        is_held_up = is_held_up or self._is_waiting or self._has_turn
        return not is_held_up and self._requests.free > 0 and self._is_open

    def _begin_alone(self, packet: Packet) -> bool:
        """Publish a request that came by itself; return False if it goes the way of the others."""
        if packet.operation != Operation.PRODUCE or not self._may_begin(packet):
            return False
        begun = self._begin_produce(packet) if self._is_calm else False
        if begun:
            self._requests.charge(packet.size)
            if self._requests.free <= 0 or self._under_way >= CONNECTION_REQUESTS_MAX:
                self._pace()
        return begun is not False

    def _begin_produce(self, packet: Packet) -> bool | None:
        """Publish without a task: return None if it is answered, False if it needs a task."""
        try:
            begun = self._dispatch.begin_produce(
                self._session, packet.header, packet.payload, partial(self._produced, packet)
            )
        except Exception as error:  # noqa: BLE001 - the outermost frame of a request
            self._write_error(packet, error)
            return None
        if begun is True:
            self._answered_later += 1
        elif begun is not False:
            self._write(packet.operation, packet.correlation, Kind.REPLY, _encode(begun))
            return None
        return begun

    def _produced(self, packet: Packet, reply: Call) -> None:
        """Answer a publish whose messages are synced."""
        self._write(packet.operation, packet.correlation, Kind.REPLY, _encode(reply))
        self._answered_later -= 1
        self._make_room(packet.size)
        if self._is_stopping and not self._answered_later:
            self._all_answered.set()

    def _finished(self, size: int, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._make_room(size)

    def _make_room(self, size: int) -> None:
        """Go on with other requests: one that had so many bytes is over."""
        self._requests.give_back(size)
        if self._backlog:
            self._start_some()
        if self._is_paused:
            self._pace()

    async def _serve(self, packet: Packet) -> None:
        """Answer a request."""
        self._unstarted -= 1
        await self._until_writable()
        room = ReplyRoom(self._replies, self._turns, self._until_turn)
        context = RequestContext(packet.payload, room, self._is_local)
        request = self._dispatch.begin(self._session, packet.operation, packet.header, context)
        try:
            await self._serve_rest(packet, room, request)
        finally:
            if not self._is_greeted:
                # Who was not understood at the door is not let in.
                self.close()

    async def _serve_rest(
        self, packet: Packet, room: ReplyRoom, request: Awaitable[Reply | Later]
    ) -> None:
        try:
            begun = await request
            reply = await begun.reply() if isinstance(begun, Later) else begun
            self._reply(packet, reply)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a request
            self._write_error(packet, error)
            reply = NO_REPLY
        except asyncio.CancelledError:
            room.release()
            raise
        await self._until_taken(room, reply)

    async def _until_taken(self, room: ReplyRoom, reply: Reply) -> None:
        """Wait until the client reads; if it is gone, what it was to get is given back."""
        try:
            await self._until_writable()
        except asyncio.CancelledError:
            reply.undo()
            raise
        finally:
            room.release()

    def _reply(self, packet: Packet, reply: Reply) -> None:
        header = _encode(reply.header)
        if reply.files and self._is_open:
            self._files.hold(reply.files)
        if not self._is_greeted:
            self._is_greeted = True
            self._watch_arrival(has_progress=True)
        if not self._is_open:
            reply.undo()
        self._write(packet.operation, packet.correlation, Kind.REPLY, header, *reply.payload)

    def _write_error(self, packet: Packet, error: BaseException) -> None:
        """Say why a request was not carried out; what is no error of ours is told to the log."""
        if not isinstance(error, GoQueueError):
            log.error(
                LogEvent.REQUEST_CRASHED,
                operation=packet.operation,
                peer=self._peer,
                exc_info=error,
            )
            error = GoQueueError("the broker failed to answer; its log says why")
        failure = _encode(failure_of(error))
        self._write(packet.operation, packet.correlation, Kind.ERROR, failure)

    async def _until_writable(self) -> None:
        while not self._writable.is_set():
            await self._writable.wait()

    async def _until_turn(self) -> None:
        """Wait until this connection may have much read, and takes what was read before."""
        self._in_line += 1
        try:
            await self._turns.take()
            while not self._writable.is_set():
                # Others have the turn while this client does not read.
                await self._writable.wait()
                await self._turns.take()
        finally:
            self._in_line -= 1
        if self._backlog and not self._in_line:
            self._start_more_soon()

    def _write(
        self, operation: int, correlation: int, kind: Kind, header: bytes, *payload: Buffer
    ) -> None:
        if not self._is_open:
            return
        assert self._transport is not None, "open"
        self._transport.writelines(packed(operation, correlation, kind, header, payload))
        self._departure.written()

    # Pace.

    def _watch_arrival(self, *, has_progress: bool) -> None:
        """Bound the time until hello, and that of a request that has begun to arrive."""
        if not self._is_greeted:
            if not self._arrival.is_set:
                self._arrival.set(HELLO_SECONDS_MAX)
        elif not self._reader.held:
            self._arrival.stop()
        elif has_progress or not self._arrival.is_set:
            self._arrival.set(REQUEST_SECONDS_CROWDED if self._has_turn else REQUEST_SECONDS_MAX)

    def _too_slow(self) -> None:
        self.refuse(InvalidRequestError("the request did not arrive in time"))

    def _not_taken(self) -> None:
        log.info(LogEvent.CONNECTION_STALLED, peer=self._peer)
        self.abort()

    def _count(self, packets: list[Packet]) -> None:
        """Count what came in; where there is no room for the rest of a large request, wait."""
        arriving = self._reader.held if self._reader.needed > REQUEST_BUFFER_FREE_BYTES else 0
        self._requests.charge(sum(packet.size for packet in packets) + arriving - self._arriving)
        self._arriving = arriving
        if packets and (self._is_waiting or self._has_turn):
            # The request that needed it is whole.
            self._is_waiting = self._has_turn = False
            self._requests.leave(self._granted)
        if arriving and self._requests.free <= 0 and not (self._is_waiting or self._has_turn):
            self._is_waiting = True
            self._requests.wait(self._granted)

    def _granted(self) -> None:
        self._is_waiting = False
        self._has_turn = self._requests.free <= 0
        if not self._is_open:
            self._requests.leave(self._granted)
            return
        self._pace()
        if not self._is_paused:
            self._watch_arrival(has_progress=True)

    def _pace(self) -> None:
        """Read on or stop reading."""
        if self._transport is None or self._transport.is_closing():
            return
        should_pause = (
            bool(self._backlog)
            or not self._writable.is_set()
            or self._is_waiting
            or self._is_stopping
            or self._under_way >= CONNECTION_REQUESTS_MAX
            or (self._requests.free <= 0 and bool(self._under_way) and not self._has_turn)
        )
        if should_pause == self._is_paused:
            return
        self._is_paused = should_pause
        if should_pause:
            self._transport.pause_reading()
            # It is the broker that keeps the client waiting now.
            self._arrival.stop()
        else:
            self._transport.resume_reading()
            self._watch_arrival(has_progress=True)
