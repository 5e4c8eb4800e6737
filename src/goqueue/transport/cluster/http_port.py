"""HTTP on the port between nodes: one request, one answer, and the connection is closed.

It is for people and their tools; nodes speak packets. Callers from other machines prove that they
know the key of the cluster, and where clients need keys every caller does; without a key the port
is on the loopback only.
"""

import asyncio
import hmac
from collections.abc import Callable
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, Protocol, cast

import httptools

from goqueue.base.errors import (
    ForbiddenError,
    GoQueueError,
    ProtocolError,
    TooLargeError,
)
from goqueue.base.units import KiB
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.transport.http.origin import Hosts
from goqueue.transport.http.reply import Response, error_reply, json_reply, refusal
from goqueue.transport.native.alarm import Alarm
from goqueue.wire.http.errors import ROUTE_NOT_FOUND, WRONG_HOST
from goqueue.wire.http.proof import PROOF_HEADER, PROOF_MS_MAX, TIME_HEADER, proof_of

REQUEST_SECONDS_MAX: Final = 10.0
HEAD_BYTES_MAX: Final = 8 * KiB
BODY_BYTES_MAX: Final = 64 * KiB
JSON_TYPE: Final = b"application/json"

log = get_logger("goqueue.cluster")


class PortReply(Protocol):
    """What a request is answered with."""

    @property
    def value(self) -> object:
        """What is written as JSON."""
        ...

    @property
    def status(self) -> int:
        """The status of HTTP."""
        ...


class PortService(Protocol):
    """What answers the requests."""

    @property
    def key(self) -> bytes:
        """The key of the cluster; empty without one."""
        ...

    @property
    def is_guarded(self) -> bool:
        """Whether a program on this machine needs the key, too."""
        ...

    @property
    def node_id(self) -> str:
        """The name of this node."""
        ...

    def now_ms(self) -> int:
        """Return the time by which proofs are judged."""
        ...

    async def answer(self, method: str, path: str, body: bytes) -> PortReply | None:
        """Answer a request, or raise a GoQueueError; None if there is no such route."""
        ...


class PortRequest(asyncio.Protocol):
    """One connection with one request."""

    def __init__(self, service: PortService, ended: Callable[[], None] = lambda: None) -> None:
        self._service = service
        self._ended = ended
        self._hosts = Hosts((service.node_id,))
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._alarm = Alarm(self._too_slow)
        self._received = 0
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request."""
        self._transport = cast("asyncio.Transport", transport)
        self._alarm.set(REQUEST_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer nothing more."""
        del exc
        self._transport = None
        self._alarm.stop()
        self._ended()

    def data_received(self, data: bytes) -> None:
        """Take a piece of the request."""
        if self._task is not None:
            return
        self._received += len(data)
        try:
            if self._received > HEAD_BYTES_MAX + BODY_BYTES_MAX:
                raise TooLargeError(f"a request has at most {BODY_BYTES_MAX} bytes here")
            self._parser.feed_data(data)
        except GoQueueError as error:
            self._reply(error_reply(error))
        except httptools.HttpParserError as error:
            self._reply(error_reply(ProtocolError(f"this is no request of HTTP: {error}")))

    # What the parser calls.

    def on_url(self, url: bytes) -> None:
        """Take a piece of the path; what follows the one request is not looked at."""
        if self._task is None:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if self._task is None:
            self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if self._task is None:
            self._body += body

    def on_message_complete(self) -> None:
        """Answer the request."""
        if self._task is None:
            self._alarm.stop()
            method = self._parser.get_method().decode("ascii", "replace")
            self._task = asyncio.get_running_loop().create_task(self._serve(method))

    # Answering.

    def _too_slow(self) -> None:
        self._reply(error_reply(ProtocolError("the request did not arrive in time")))

    async def _serve(self, method: str) -> None:
        path = self._url.partition(b"?")[0].decode("ascii", "replace")
        if not self._is_ours():
            text = "this node is not called by that name"
            self._reply(refusal(HTTPStatus.MISDIRECTED_REQUEST, text, code=WRONG_HOST))
            return
        try:
            self._admit(method, path)
            found = await self._service.answer(method, path, bytes(self._body))
            if found is None:
                reply = refusal(HTTPStatus.NOT_FOUND, "no such route", code=ROUTE_NOT_FOUND)
            else:
                reply = json_reply(found.value, HTTPStatus(found.status))
        except GoQueueError as error:
            reply = error_reply(error)
        except Exception:
            log.exception(LogEvent.REQUEST_CRASHED, path=path)
            reply = error_reply(GoQueueError("the node failed to answer"))
        self._reply(reply)

    def _is_ours(self) -> bool:
        """Return True unless a page of a stranger gave this machine a name of its own."""
        return self._hosts.has(self._headers.get(b"host"))

    def _admit(self, method: str, path: str) -> None:
        """Raise unless the caller proves that it has the key, or needs none on this machine."""
        if method != "GET" and not self._headers.get(b"content-type", b"").startswith(JSON_TYPE):
            # A page of a stranger cannot send this without being asked first.
            raise ForbiddenError("a request that changes something has a body of application/json")
        if self._is_here() and not self._service.is_guarded:
            return
        key, text = self._service.key, self._headers.get(TIME_HEADER.encode(), b"")
        if not key or not text.isdigit() or len(text) > 15:  # noqa: PLR2004 - a time in ms
            who = "callers" if self._service.is_guarded else "callers from other machines"
            raise ForbiddenError(f"{who} prove that they have the key of the cluster")
        wanted = proof_of(key, method, path, int(text), bytes(self._body))
        given = self._headers.get(PROOF_HEADER.encode(), b"")
        is_in_time = abs(self._service.now_ms() - int(text)) <= PROOF_MS_MAX
        if not hmac.compare_digest(given, wanted.encode()) or not is_in_time:
            raise ForbiddenError("the caller does not know the key of this cluster")

    def _is_here(self) -> bool:
        assert self._transport is not None, "connected"
        peer = self._transport.get_extra_info("peername")
        try:
            return ip_address(str(peer[0]).partition("%")[0]).is_loopback
        except (ValueError, TypeError, IndexError):
            return False

    def _reply(self, reply: Response) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.writelines((reply.head, b"connection: close\r\n\r\n", reply.body))
            transport.close()
