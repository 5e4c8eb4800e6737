"""One native connection: packets in, packets out, never more at once than its limits.

Reading stops while too many requests are unanswered, too many reply bytes are unsent, or the common
budget has no room for the request that is arriving. A slow client so slows itself only.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import msgspec
import structlog

from goqueue.base.errors import GoQueueError, InvalidRequestError, ProtocolError
from goqueue.base.limits import (
    CONNECTION_REQUESTS_MAX,
    CONNECTION_WRITE_BYTES_MAX,
    REQUEST_BUFFER_FREE_BYTES,
)
from goqueue.transport.native.budget import ByteBudget
from goqueue.transport.native.dispatch import Dispatch, failure_of
from goqueue.wire.packet import Buffer, Kind, Operation, Packet, PacketReader, encode_packet

HELLO_SECONDS_MAX: Final = 10.0
"""A connection that has not said hello by then is closed."""

REQUEST_SECONDS_MAX: Final = 30.0
"""A request that has begun to arrive must be whole by then."""

_encode: Final = msgspec.msgpack.Encoder().encode
log = structlog.get_logger("goqueue.native")


class Connection(asyncio.Protocol):
    """Reads requests, starts them in order, writes each reply when it is there."""

    def __init__(
        self,
        dispatch: Dispatch,
        budget: ByteBudget,
        *,
        opened: Callable[["Connection"], None],
        closed: Callable[["Connection"], None],
    ) -> None:
        self._dispatch = dispatch
        self._budget = budget
        self._opened = opened
        self._closed = closed
        self._reader = PacketReader()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._share = 0
        self._is_greeted = False
        self._is_writable = True
        self._is_waiting_for_share = False
        self._is_paused = False
        self._peer = ""

    def __repr__(self) -> str:
        return f"<Connection {self._peer}: {len(self._tasks)} requests>"

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet nobody yet; wait for hello."""
        # uvloop's transport is one by shape, not by inheritance.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=CONNECTION_WRITE_BYTES_MAX)
        self._peer = str(transport.get_extra_info("peername"))
        self._arm(HELLO_SECONDS_MAX)
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what was under way; a publish already appended stays appended."""
        del exc
        self._transport = None
        self._disarm()
        self._release_share()
        for task in self._tasks:
            task.cancel()
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        """Cut packets and start them."""
        try:
            packets = self._reader.feed(data)
        except ProtocolError as error:
            self.refuse(error)
            return
        for packet in packets:
            if not self._start(packet):
                return
        self._watch_arrival(has_progress=bool(packets))
        self._take_share()
        self._pace()

    def pause_writing(self) -> None:
        """Read no more requests while the client does not take its replies."""
        self._is_writable = False
        self._pace()

    def resume_writing(self) -> None:
        """Go on reading."""
        self._is_writable = True
        self._pace()

    # Ours.

    async def drain(self) -> None:
        """Return when every request under way has been answered."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def close(self) -> None:
        """End the connection when what was written has gone out."""
        if self._transport is not None:
            self._transport.close()

    def refuse(self, error: GoQueueError) -> None:
        """Say why and end the connection: its stream cannot be trusted any more."""
        log.info("connection refused", peer=self._peer, code=error.code, error=error.message)
        self._write(0, 0, Kind.ERROR, _encode(failure_of(error)))
        self.close()

    def _start(self, packet: Packet) -> bool:
        if packet.kind != Kind.REQUEST:
            self.refuse(ProtocolError("a client sends requests"))
            return False
        if not self._is_greeted:
            if packet.operation != Operation.HELLO:
                self.refuse(ProtocolError("the first request is hello"))
                return False
            self._is_greeted = True
            self._disarm()
        # What was set aside while it arrived is part of what it is charged now.
        self._budget.charge(packet.size - self._share)
        self._share = 0
        task = asyncio.get_running_loop().create_task(self._serve(packet))
        self._tasks.add(task)
        task.add_done_callback(partial(self._finished, packet.size))
        return True

    async def _serve(self, packet: Packet) -> None:
        operation, correlation = packet.operation, packet.correlation
        try:
            reply = await self._dispatch.serve(operation, packet.header, packet.payload)
            header = _encode(reply.header)
        except GoQueueError as error:
            self._write(operation, correlation, Kind.ERROR, _encode(failure_of(error)))
        except Exception:
            log.exception("request failed", operation=operation, peer=self._peer)
            failure = failure_of(GoQueueError("the broker failed to answer; its log says why"))
            self._write(operation, correlation, Kind.ERROR, _encode(failure))
        else:
            self._write(operation, correlation, Kind.REPLY, header, *reply.payload)

    def _write(
        self, operation: int, correlation: int, kind: Kind, header: bytes, *payload: Buffer
    ) -> None:
        if self._transport is not None:
            self._transport.writelines(
                encode_packet(
                    operation=operation,
                    kind=kind,
                    correlation=correlation,
                    header=header,
                    payload=payload,
                )
            )

    def _finished(self, size: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._budget.give_back(size)
        self._pace()

    def _watch_arrival(self, *, has_progress: bool) -> None:
        """Bound the time and the memory of a request that has begun to arrive."""
        if not self._reader.held:
            if self._is_greeted:
                self._disarm()
            return
        if has_progress or self._timer is None:
            self._arm(REQUEST_SECONDS_MAX if self._is_greeted else HELLO_SECONDS_MAX)

    def _take_share(self) -> None:
        """Set memory aside for a large request that is arriving, or wait for it."""
        if self._is_waiting_for_share or self._share:
            return
        needed = self._reader.needed if self._reader.held else 0
        wanted = needed if needed > REQUEST_BUFFER_FREE_BYTES else 0
        self._is_waiting_for_share = not self._budget.take(wanted, self._granted)
        self._share = wanted

    def _granted(self) -> None:
        self._is_waiting_for_share = False
        if self._transport is None:
            # The connection ended while it waited.
            self._release_share()
            return
        self._arm(REQUEST_SECONDS_MAX)
        self._pace()

    def _release_share(self) -> None:
        if self._share and not self._is_waiting_for_share:
            share, self._share = self._share, 0
            self._budget.give_back(share)

    def _pace(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        should_pause = (
            not self._is_writable
            or self._is_waiting_for_share
            or len(self._tasks) >= CONNECTION_REQUESTS_MAX
        )
        if should_pause and not self._is_paused:
            self._transport.pause_reading()
        elif self._is_paused and not should_pause:
            self._transport.resume_reading()
        self._is_paused = should_pause

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._is_waiting_for_share:
            # It is the broker that keeps this one waiting.
            self._arm(REQUEST_SECONDS_MAX)
            return
        self.refuse(InvalidRequestError("the request did not arrive in time"))
