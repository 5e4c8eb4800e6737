"""A network in memory: streams with latency that are cut in pieces, reset, delayed and blocked."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final

from goqueue.base.units import KiB
from goqueue.testing.sim.loop import OWNER, Owner, SimLoop
from goqueue.testing.sim.trace import Trace

LATENCY_SECONDS: Final = (0.000_05, 0.000_8)
STEP_SECONDS: Final = 0.000_000_1
PIECE_BYTES_MAX: Final = 64 * KiB
"""The most that arrives at once, as from one read of a socket."""
HIGH_BYTES: Final = 64 * KiB
SPLIT_PERCENT: Final = 10
CUT_OFF_SECONDS: Final = 0.1
"""How often the first packet of a connection is sent again while nothing gets through."""


class _Socket:
    """What protocols ask of a socket."""

    family = socket.AF_INET

    def __init__(self, port: int) -> None:
        self._port = port

    def setsockopt(self, *_: object) -> None:
        """Accept any option."""

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", self._port)


class SimTransport(asyncio.Transport):
    """One end of a stream."""

    def __init__(self, network: "SimNetwork", context: Context, *, port: int) -> None:
        super().__init__(
            {
                "socket": _Socket(port),
                "peername": ("127.0.0.1", port),
                "sockname": ("127.0.0.1", port),
            }
        )
        self._network = network
        self._loop = network.loop
        self._context = context
        self._protocol: asyncio.Protocol | None = None
        self._peer: SimTransport | None = None
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._unsent = 0
        self._arrives_at = 0.0
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        self._is_paused = False
        self._is_writing_paused = False
        self._is_closing = False
        self._is_lost = False
        self._has_end = False
        self.is_mute = False
        """Whether what this end sends is lost, its end included: the other one hears nothing."""

    def attach(self, protocol: asyncio.Protocol, peer: "SimTransport") -> None:
        """Take a protocol and the other end."""
        self._protocol, self._peer = protocol, peer

    @property
    def owner(self) -> Owner | None:
        """The process this end belongs to."""
        return self._context.get(OWNER)

    # What protocols call.

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return who reads here."""
        assert self._protocol is not None, "attached"
        return self._protocol

    def is_closing(self) -> bool:
        """Return True if nothing more is sent."""
        return self._is_closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send bytes in one go."""
        data = b"".join(list_of_data)
        if self._is_closing or not data:
            return
        self._unsent += len(data)
        self._network.carry(self, data)
        if self._unsent > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self.get_protocol().pause_writing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the receiver has not taken."""
        return self._unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the protocol is asked to pause."""
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        """Deliver nothing for now."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Deliver what has arrived meanwhile."""
        self._is_paused = False
        self._loop.call_soon(self._deliver, context=self._context)

    def close(self) -> None:
        """Send what was written, then the end of the stream."""
        if not self._is_closing:
            self._is_closing = True
            self._network.carry(self, b"")
            self._loop.call_soon(self._lose, None, context=self._context)

    def abort(self) -> None:
        """End the stream in both directions at once."""
        self._is_closing = True
        self.reset(None)

    # What the network calls.

    def reset(self, error: Exception | None) -> None:
        """End both ends; the other one learns it a little later."""
        self._loop.call_soon(self._lose, error, context=self._context)
        if self._peer is not None and not self.is_mute:
            self._network.reset_later(self._peer)

    def receive(self, data: bytes) -> None:
        """Take bytes that have arrived; none are the end of the stream."""
        if self._is_lost:
            return
        if data:
            self._inbox.append(data)
            self._inbox_bytes += len(data)
        else:
            self._has_end = True
        self._deliver()

    def lose(self) -> None:
        """End this end because the other one is gone."""
        self._lose(ConnectionResetError("Connection reset by peer"))

    def _deliver(self) -> None:
        while self._inbox and not self._is_paused and not self._is_lost:
            data = self._inbox.popleft()
            self._inbox_bytes -= len(data)
            assert self._protocol is not None, "attached"
            self._protocol.data_received(data)
            if self._peer is not None:
                self._peer.taken(len(data))
        if self._has_end and not self._inbox and not self._is_lost:
            self._is_closing = True
            self._lose(None)

    def taken(self, size: int) -> None:
        """Note that the receiver took bytes."""
        self._unsent -= size
        if self._is_writing_paused and self._unsent <= self._low and not self._is_lost:
            self._is_writing_paused = False
            self._loop.call_soon(self.get_protocol().resume_writing, context=self._context)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._network.forget(self)
        self.get_protocol().connection_lost(error)

    def arrival(self, seconds: float) -> float:
        """Return when bytes sent now arrive: never before those sent earlier."""
        # Timers of one moment run in no particular order, so no two pieces share one.
        self._arrives_at = max(self._arrives_at + STEP_SECONDS, self._loop.time() + seconds)
        return self._arrives_at

    @property
    def peer(self) -> "SimTransport | None":
        """The other end."""
        return self._peer

    @property
    def context(self) -> Context:
        """Where the callbacks of this end run."""
        return self._context


class _Listener:
    """Somebody who accepts connections, in the shape of asyncio.Server."""

    def __init__(
        self, network: "SimNetwork", factory: Callable[[], asyncio.Protocol], port: int
    ) -> None:
        self._network = network
        self.factory = factory
        self.port = port
        self.context = copy_context()
        self.sockets = (_Socket(port),)

    @property
    def owner(self) -> Owner | None:
        """The process that listens."""
        return self.context.get(OWNER)

    async def start_serving(self) -> None:
        """Accept connections; those that came before are waiting."""

    def close(self) -> None:
        """Accept no more."""
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        """Return at once."""


class SimNetwork:
    """Connects processes of one loop by port numbers."""

    def __init__(self, loop: SimLoop, chance: Random, trace: Trace) -> None:
        self.loop = loop
        self._chance = chance
        self._trace = trace
        self._listeners: dict[int, _Listener] = {}
        self._ends: dict[SimTransport, None] = {}
        self._extra_seconds = 0.0
        self._blocked_until = 0.0
        self._next_port = 50_000
        self._cut_off: dict[Owner, None] = {}
        loop.connect = self._connect
        loop.listen = self._listen

    # Faults.

    def reset_some(self, percent: int) -> None:
        """Reset a part of the connections there are."""
        for end in list(self._ends):
            if self._chance.randrange(100) < percent:
                end.reset(ConnectionResetError("Connection reset by peer"))

    def mute(self, owner: Owner, *, hears: bool) -> list[SimTransport]:
        """Lose what a process sends on its connections, and what it is sent unless it ``hears``.

        Returns the ends that are mute now.
        """
        near = [end for end in self._ends if end.owner is owner]
        far = [] if hears else [end.peer for end in near if end.peer is not None]
        for end in (*near, *far):
            end.is_mute = True
        return [*near, *far]

    def cut_off(self, owner: Owner) -> None:
        """Lose all that a process sends and is sent, until ``join``; others talk on."""
        self._cut_off[owner] = None

    def join(self, owner: Owner) -> None:
        """Let a process be reached again; its connections of before are reset."""
        self._cut_off.pop(owner, None)
        self.reset_process(owner)

    def _is_cut(self, *owners: Owner | None) -> bool:
        return any(owner in self._cut_off for owner in owners if owner is not None)

    def reset_process(self, owner: Owner) -> None:
        """Reset every connection of a process, which lives on."""
        for end in [one for one in self._ends if one.owner is owner]:
            end.reset(ConnectionResetError("Connection reset by peer"))

    def slow_down(self, seconds: float) -> None:
        """Add latency to everything from now on; 0 takes it back."""
        self._extra_seconds = seconds

    def block(self, seconds: float) -> None:
        """Deliver nothing for a while; then everything arrives, as TCP sends it again."""
        self._blocked_until = self.loop.time() + seconds

    def drop_process(self, owner: Owner) -> None:
        """End every connection and listener of a process that died."""
        for port in [one.port for one in self._listeners.values() if one.owner is owner]:
            del self._listeners[port]
        for end in [one for one in self._ends if one.owner is owner]:
            del self._ends[end]
            if end.peer is not None and not end.is_mute:
                self.reset_later(end.peer)

    # What transports call.

    def carry(self, sender: SimTransport, data: bytes) -> None:
        """Bring bytes to the other end, in pieces, each some time later."""
        peer = sender.peer
        assert peer is not None, "attached"
        if sender.is_mute or self._is_cut(sender.owner, peer.owner):
            return
        pieces = [data[at : at + PIECE_BYTES_MAX] for at in range(0, len(data), PIECE_BYTES_MAX)]
        if len(data) > 1 and self._chance.randrange(100) < SPLIT_PERCENT:
            cut = self._chance.randrange(1, min(len(data), PIECE_BYTES_MAX))
            pieces = [pieces[0][:cut], pieces[0][cut:], *pieces[1:]]
        for piece in pieces or [b""]:
            self._trace.note("net", len(piece), piece)
            at = sender.arrival(self._latency())
            self.loop.call_at(at, peer.receive, piece, context=peer.context)

    def reset_later(self, end: SimTransport) -> None:
        """Let an end learn that the other one is gone."""
        self.loop.call_later(self._latency(), end.lose, context=end.context)

    def forget(self, end: SimTransport) -> None:
        """Drop an end that is closed."""
        self._ends.pop(end, None)

    def unlisten(self, listener: _Listener) -> None:
        """Refuse connections to a port from now on."""
        if self._listeners.get(listener.port) is listener:
            del self._listeners[listener.port]

    def _latency(self) -> float:
        seconds = self._chance.uniform(*LATENCY_SECONDS) + self._extra_seconds
        return max(seconds, self._blocked_until - self.loop.time())

    async def _listen(
        self,
        factory: Callable[[], asyncio.Protocol],
        host: str | None = None,
        port: int = 0,
        **_: object,
    ) -> _Listener:
        del host
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if port in self._listeners:
            raise OSError(98, f"address already in use: {port}")
        self._listeners[port] = _Listener(self, factory, port)
        return self._listeners[port]

    async def _connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: object
    ) -> tuple[SimTransport, asyncio.Protocol]:
        await asyncio.sleep(self._latency())
        listener = self._listeners.get(port)
        while self._is_cut(OWNER.get(), listener.owner if listener is not None else None):
            await asyncio.sleep(CUT_OFF_SECONDS)
            listener = self._listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(111, f"Connect call failed ({host!r}, {port})")
        near = SimTransport(self, copy_context(), port=port)
        far = SimTransport(self, listener.context, port=self._next_port)
        protocol = factory()
        ready: asyncio.Future[asyncio.Protocol] = self.loop.create_future()

        def accept() -> None:
            accepted = listener.factory()
            far.attach(accepted, near)
            near.attach(protocol, far)
            self._ends[near] = self._ends[far] = None
            accepted.connection_made(far)
            if not ready.done():
                ready.set_result(accepted)

        self.loop.call_soon(accept, context=listener.context)
        # A process that dies right now accepts nobody: its connections are reset.
        await asyncio.wait([ready], timeout=1.0)
        if not ready.done():
            raise ConnectionResetError("Connection reset by peer")
        protocol.connection_made(near)
        return near, protocol
