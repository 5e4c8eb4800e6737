"""One HTTP connection: uvicorn's protocol, with bounds on what it leaves unbounded.

The head of a request, trailers and every wait on the peer have a limit; and what cannot be parsed
is answered with JSON like everything else.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from goqueue.base.units import KiB
from goqueue.transport.http.reply import JSON, encode
from goqueue.wire.http.errors import HEAD_TOO_LARGE, ErrorReply

HEAD_BYTES_MAX: Final = 64 * KiB
"""Longest request line with all headers."""

HEAD_SECONDS_MAX: Final = 30
"""Longest wait for the head of a request, once a connection is open."""

WRITE_SECONDS_MAX: Final = 30
"""Longest a peer may read nothing of a reply that is waiting for it."""

KEEP_ALIVE_SECONDS: Final = 75
"""How long a connection may lie idle between requests; longer than proxies and clients keep one."""


class HeadTooLargeError(Exception):
    """The head or the trailers of a request are too large."""


class HttpConnection(HttpToolsProtocol):
    """A connection that cannot hold the broker's memory or wait forever."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        *,
        connections_max: int,
        lost: Callable[[], None],
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self._connections_max = connections_max
        self._lost = lost
        self._silent_bytes = 0
        self._head_alarm = Alarm(HEAD_SECONDS_MAX, self.abort)
        self._write_alarm = Alarm(WRITE_SECONDS_MAX, self.abort)
        self._refusal: tuple[HTTPStatus, str, str] | None = None

    # What the transport tells.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless there are too many already."""
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            self._refusal = (
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the broker has as many connections as it may",
                "overloaded",
            )
            self.send_400_response("")
            return
        self._head_alarm.start()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._head_alarm.stop()
        self._write_alarm.stop()
        super().connection_lost(exc)
        self._lost()

    def data_received(self, data: bytes) -> None:
        """Parse, and count what does not get anywhere."""
        if self.transport.is_closing():
            return
        self._silent_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._silent_bytes > HEAD_BYTES_MAX:
            self._refuse_head()
            self.send_400_response("")
        elif self.cycle is None or self.cycle.response_complete:
            self._head_alarm.start()

    def pause_writing(self) -> None:
        """Give the peer a while to read on."""
        super().pause_writing()
        self._write_alarm.start()

    def resume_writing(self) -> None:
        """Go on: the peer reads."""
        self._write_alarm.stop()
        super().resume_writing()

    # What the parser tells.

    def on_headers_complete(self) -> None:
        """Take the head if it is not too large."""
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_BYTES_MAX:
            self._refuse_head()
            raise HeadTooLargeError
        self._silent_bytes = 0
        self._head_alarm.stop()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._silent_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self._silent_bytes = 0
        super().on_message_complete()

    # Refusing.

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, and close."""
        status, text, code = self._refusal or (HTTPStatus.BAD_REQUEST, msg, "protocol_error")
        body = encode(ErrorReply(error=text, status=status.value, code=code))
        head = f"content-type: {JSON}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(STATUS_LINE[status.value] + head.encode() + body)
        self.transport.close()

    def abort(self) -> None:
        """Close without sending what is left."""
        self.transport.abort()

    def _refuse_head(self) -> None:
        self._refusal = (
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"the head of the request is too large; the limit is {HEAD_BYTES_MAX} bytes",
            HEAD_TOO_LARGE,
        )


class Alarm:
    """Rings once, unless it is stopped in time."""

    __slots__ = ("_ring", "_seconds", "_timer")

    def __init__(self, seconds: float, ring: Callable[[], None]) -> None:
        self._seconds = seconds
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to wait; what has begun is not put off."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._ring)

    def stop(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
