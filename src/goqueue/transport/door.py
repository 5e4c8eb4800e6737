"""A listener: takes a port and hands each connection to a protocol, by TLS or in the clear.

In the clear the event loop accepts. By TLS a handshake comes first, which costs the loop far more
than a request: they are counted before they begin, bounded in number, in number from one address,
in how many begin in a second, and in time. One that speaks no TLS is told so.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Final

from goqueue.base.units import KiB
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger

BACKLOG: Final = 1_024
HANDSHAKES_MAX: Final = 256
"""Handshakes under way."""
HANDSHAKES_OF_ADDRESS_MAX: Final = 32
"""Of these, from one address; of IPv6, from one network of a site."""
HANDSHAKES_A_SECOND: Final = 300
"""A handshake costs most of a millisecond, so these are a fifth of the loop's time."""
HANDSHAKE_SECONDS_MAX: Final = 10.0
ACCEPT_PAUSE_SECONDS: Final = 0.1
"""Pause after an accept that failed, for want of descriptors for example."""

_TLS_RECORD: Final = b"\x16"
_PEEK_BYTES: Final = 16
_PLAIN_BYTES: Final = 64 * KiB
_SITE_PREFIX: Final = 64

log = get_logger("goqueue.door")

Contexts = Callable[[], ssl.SSLContext]
"""Return the TLS context in force: certificates are replaced while a broker runs."""


class Door:
    """Listens at one address."""

    def __init__(
        self,
        accept: Callable[[], asyncio.Protocol],
        *,
        tls: Contexts | None = None,
        plain_reply: Callable[[bytes], bytes] = lambda _: b"",
    ) -> None:
        self._accept = accept
        self._tls = tls
        self._plain_reply = plain_reply
        self._server: asyncio.Server | None = None
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._shaking: dict[asyncio.Task[None], None] = {}
        self._by_address: Counter[str] = Counter()
        self._second = 0
        self._begun = 0
        self.refused = 0
        """Connections that were closed before their handshake, for there were too many."""
        self.failed = 0
        """Handshakes that failed."""
        self.address = ""
        """Where it listens, with the port that was really taken."""

    def __repr__(self) -> str:
        return f"<Door at {self.address}: {len(self._shaking)} handshakes>"

    @property
    def is_open(self) -> bool:
        """Return True from the moment the port is taken until it is given back."""
        return self._server is not None or bool(self._sockets)

    async def bind(self, listener: str) -> None:
        """Take the port of ``host:port`` without accepting; port 0 takes a free one."""
        host, _, port = listener.rpartition(":")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept,
            host.strip("[]") or None,
            int(port),
            backlog=BACKLOG,
            start_serving=False,
        )
        bound = self._server.sockets
        self.address = f"{host}:{bound[0].getsockname()[1]}"
        if self._tls is not None:
            # Those of the loop's server know no end of handshakes: the sockets are used without it.
            self._sockets = [socket.socket(fileno=socket.dup(one.fileno())) for one in bound]
            for one in self._sockets:
                one.settimeout(0)

    async def listen(self) -> None:
        """Accept connections at the port that was taken."""
        assert self._server is not None, "bound"
        if self._tls is None:
            await self._server.start_serving()
            return
        loop = asyncio.get_running_loop()
        for one in self._sockets:
            one.listen(BACKLOG)
        self._accepting = [loop.create_task(self._accept_by_tls(one)) for one in self._sockets]

    def close(self) -> None:
        """Accept no more."""
        if self._server is not None:
            self._server.close()
        for task in (*self._accepting, *self._shaking):
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when the port is free again."""
        if self._accepting or self._shaking:
            await asyncio.wait([*self._accepting, *self._shaking])
        self._accepting.clear()
        for one in self._sockets:
            one.close()
        self._sockets.clear()
        server, self._server = self._server, None
        if server is not None:
            await server.wait_closed()

    # Handshakes.

    async def _accept_by_tls(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._pace()
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError as error:
                log.warning(LogEvent.CONNECTION_NOT_ACCEPTED, reason=error.strerror or str(error))
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            address = _site_of(peer)
            if not self._may_shake(address):
                self.refused += 1
                connection.close()
                continue
            self._by_address[address] += 1
            task = loop.create_task(self._shake(connection, str(peer[0])))
            self._shaking[task] = None
            task.add_done_callback(partial(self._shaken, address))

    async def _pace(self) -> None:
        """Wait for the next second if in this one as many handshakes have begun as may."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if int(now) != self._second:
            self._second, self._begun = int(now), 0
        self._begun += 1
        if self._begun > HANDSHAKES_A_SECOND:
            await asyncio.sleep(int(now) + 1 - now)

    def _may_shake(self, address: str) -> bool:
        return (
            len(self._shaking) < HANDSHAKES_MAX
            and self._by_address[address] < HANDSHAKES_OF_ADDRESS_MAX
        )

    def _shaken(self, address: str, task: "asyncio.Task[None]") -> None:
        self._shaking.pop(task, None)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        if not task.cancelled():
            task.exception()

    async def _shake(self, connection: socket.socket, peer: str) -> None:
        """Hand a connection over when its handshake is done."""
        assert self._tls is not None, "only with TLS"
        connection.settimeout(0)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
                first = await _peek(connection)
                if first[:1] != _TLS_RECORD:
                    self._answer_plain(connection, peer, first)
                    return
                await loop.connect_accepted_socket(
                    self._accept,
                    connection,
                    ssl=self._tls(),
                    ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
                )
        except OSError as error:
            self._fail(connection, peer, error)
        except BaseException:
            connection.close()
            raise

    def _answer_plain(self, connection: socket.socket, peer: str, first: bytes) -> None:
        if first:
            log.info(LogEvent.TLS_HANDSHAKE_FAILED, peer=peer, reason="the client spoke no TLS")
            # What was sent is taken first: a reply before unread bytes would be lost by a reset.
            connection.recv(_PLAIN_BYTES)
            reply = self._plain_reply(first)
            if reply:
                connection.send(reply)
                connection.shutdown(socket.SHUT_WR)
        connection.close()

    def _fail(self, connection: socket.socket, peer: str, error: OSError) -> None:
        self.failed += 1
        connection.close()
        reason = f"not done within {HANDSHAKE_SECONDS_MAX:g} s"
        if isinstance(error, ssl.SSLError):
            reason = (error.reason or str(error)).replace("_", " ").lower()
        elif not isinstance(error, TimeoutError):
            reason = error.strerror or str(error) or "the client closed the connection"
        log.info(LogEvent.TLS_HANDSHAKE_FAILED, peer=peer, reason=reason)


async def _peek(connection: socket.socket) -> bytes:
    """Return the first bytes of a connection without taking them; empty at its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, _note, ready)
    try:
        await ready
    finally:
        loop.remove_reader(connection)
    return connection.recv(_PEEK_BYTES, socket.MSG_PEEK)


def _note(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def _site_of(peer: tuple[object, ...]) -> str:
    """Return what counts as one address: of IPv6, the network that one site has."""
    text = str(peer[0]).partition("%")[0]
    address = ip_address(text)
    if address.version == 4 or address.ipv4_mapped is not None:  # noqa: PLR2004
        return text
    return str(int(address) >> (128 - _SITE_PREFIX))
