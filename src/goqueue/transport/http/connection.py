"""One HTTP connection: requests come in, replies go out in the same order.

The parser is httptools. The head of a request, trailers and every wait on the peer have a limit;
and what cannot be parsed is answered with JSON like everything else.
"""

import asyncio
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import httptools

from goqueue.base.caller import Transport
from goqueue.base.errors import GoQueueError, WrongPortError
from goqueue.base.started import Started
from goqueue.base.units import KiB
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.service.gate import Session
from goqueue.transport.certificate import caller_of
from goqueue.transport.follow import follow
from goqueue.transport.http.exchange import Exchange, Headers
from goqueue.transport.http.hub import Hub
from goqueue.transport.http.idle_alarm import IdleAlarm
from goqueue.transport.http.reply import Response, error_reply, refusal
from goqueue.transport.http.waits import refusal_of
from goqueue.transport.unsent import keep_little_unsent
from goqueue.wire.http.errors import HEAD_TOO_LARGE
from goqueue.wire.wrong_port import http_port_text, is_native

HEAD_BYTES_MAX: Final = 64 * KiB
"""Longest request line with all headers."""

BODY_BYTES_AHEAD: Final = 64 * KiB
"""So much of a body is read ahead."""

HEADERS_MAX: Final = 128
"""Most headers of a request: each costs more memory than its bytes."""

REQUESTS_AHEAD: Final = 8
"""So many requests are taken while one is being answered."""

PARSED_BYTES: Final = 16 * KiB
"""So much is parsed before it is asked again whether there is room for more requests."""

HEAD_BYTES_SURE: Final = HEAD_BYTES_MAX // 2
"""If not more was parsed without progress, the head is not too large.

What was parsed together with the end of the request before it does not count as that.
"""
assert HEAD_BYTES_SURE + PARSED_BYTES + HEADERS_MAX < HEAD_BYTES_MAX

HEAD_SECONDS_MAX: Final = 30
"""Longest wait for the head of a request, once a connection is open."""

WRITE_SECONDS_MAX: Final = 30
"""Longest a peer may read nothing of a reply that is waiting for it."""

KEEP_ALIVE_SECONDS: Final = 75
"""How long a connection may lie idle between requests; longer than proxies and clients keep one."""

_GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"

log = get_logger("goqueue.http")


class HeadTooLargeError(Exception):
    """The head or the trailers of a request are too large."""


class HttpConnection(asyncio.Protocol):
    """A connection that cannot hold the broker's memory or wait forever."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        # What follows a request that ends the connection is not looked at, and no error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._unparsed = b""
        """What was read and waits for those before it."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_in_head = True
        self._is_deaf = False
        """Whether what comes is no longer looked at: the connection is about to end."""
        self._latest: Exchange | None = None
        """The request that is coming in, or came in last."""
        self._running: Exchange | None = None
        """The request that is being answered."""
        self._fresh: Exchange | None = None
        """One that is to be answered now and came in the piece that is being parsed."""
        self._is_sending = False
        """Whether a reply has begun and not ended."""
        self._task: asyncio.Future[None] | None = None
        """What answers the request that is being answered, if that takes a while."""
        self._ended: GoQueueError | None = None
        """Why that is given up, where the caller may not have it any more."""
        self._queue: deque[Exchange] = deque()
        """Requests that came before those ahead of them were answered."""
        self._silent_bytes = 0
        self._is_paused = False
        self._writable: asyncio.Future[None] | None = None
        """Is there while the peer must read before more is written."""
        self._head_alarm = IdleAlarm(HEAD_SECONDS_MAX, self.abort)
        self._write_alarm = IdleAlarm(WRITE_SECONDS_MAX, self.abort)
        self._idle_alarm = IdleAlarm(KEEP_ALIVE_SECONDS, self._close)
        self._end_alarm = IdleAlarm(WRITE_SECONDS_MAX, self.abort)
        self._refusal: tuple[HTTPStatus, str, str] | None = None

    def __repr__(self) -> str:
        return f"<HttpConnection: {len(self._queue)} requests wait>"

    @property
    def _is_idle(self) -> bool:
        return self._latest is None or self._latest.is_answered

    @property
    def takes_replies(self) -> bool:
        """Whether the system has taken every reply so far: then another is worth working for."""
        return self._writable is None

    @property
    def is_open(self) -> bool:
        """Whether what is written still goes out."""
        return not self._transport.is_closing()

    @property
    def session(self) -> Session:
        """Who sends the requests, and what was granted."""
        return self._session

    # What the transport tells.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless there are too many already."""
        self._transport = transport
        self._session = self._hub.app.gate.open(caller_of(transport, Transport.HTTP))
        # What the system does not take at once is known, and no more work is done until it has.
        # By TLS nothing waiting is at the limit of nothing already.
        is_tls = transport.get_extra_info("ssl_object") is not None
        transport.set_write_buffer_limits(high=1 if is_tls else 0)
        keep_little_unsent(transport)
        self._hub.connections.add(self)
        if len(self._hub.connections) > self._hub.connections_max:
            self._refusal = (
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the broker has as many connections as it may",
                "overloaded",
            )
            self._refuse("")
            return
        self._head_alarm.start()

    def connection_lost(self, _exc: Exception | None) -> None:
        """End."""
        self._hub.connections.discard(self)
        for alarm in (self._head_alarm, self._write_alarm, self._idle_alarm, self._end_alarm):
            alarm.close()
        for exchange in (self._running, *self._queue):
            if exchange is not None:
                exchange.leave()
        self._queue.clear()
        # Both know this connection, and would keep one another in memory for a while.
        self._latest = self._running = None
        del self._parser
        self._let_write()
        self._hub.lost()

    def data_received(self, data: bytes) -> None:
        """Parse, and count what does not get anywhere."""
        self._idle_alarm.stop()
        self._unparsed = self._unparsed + data if self._unparsed else data
        self._take_in()

    def _take_in(self) -> None:
        """Parse what is here as long as there is room for it, and read on or not."""
        while self._unparsed and self._has_room:
            piece = self._unparsed[:PARSED_BYTES]
            self._unparsed = self._unparsed[PARSED_BYTES:]
            self._parse(piece)
            if self._fresh is not None and not self._fresh.is_whole:
                # The rest of its body comes as it asks for it.
                self._begin_fresh()
        if not self._transport.is_closing():
            if self._has_room:
                self._resume_reading()
            else:
                self._pause_reading()
        if self._fresh is not None:
            self._begin_fresh()

    @property
    def _has_room(self) -> bool:
        """Return True if requests may come; a body that nobody takes keeps them away, too."""
        latest = self._latest
        is_large = latest is not None and not latest.is_answered and latest.size > BODY_BYTES_AHEAD
        is_open = not (self._is_deaf or self._transport.is_closing())
        return is_open and not is_large and len(self._queue) < REQUESTS_AHEAD

    def _parse(self, piece: bytes) -> None:
        self._silent_bytes += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # Nothing else is spoken here; the request is answered as if it had not asked, and what
            # follows it may be of another protocol.
            self._is_deaf = True
            if self._latest is not None:
                self._latest.is_kept_alive = False
        except httptools.HttpParserError:
            if self._latest is None and is_native(piece):
                text = http_port_text(self._hub.native())
                self._refusal = (HTTPStatus.BAD_REQUEST, text, WrongPortError.code)
            self._refuse("Invalid HTTP request received.")
        else:
            if self._silent_bytes > HEAD_BYTES_MAX:
                self._refuse_head()
                self._refuse("")
            elif self._is_idle:
                self._head_alarm.start()

    def pause_writing(self) -> None:
        """Give the peer a while to read on."""
        self._writable = self._loop.create_future()
        self._write_alarm.start()

    def resume_writing(self) -> None:
        """Go on: the peer reads."""
        self._write_alarm.stop()
        self._let_write()
        if self._queue and self._running is None:
            self._begin_next()
            self._take_in()

    def _let_write(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # What the parser tells.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._headers = []
        self._is_in_head = True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what is sent behind a body is none."""
        if self._is_in_head:
            self._headers.append((name.lower(), value))
            if len(self._headers) > HEADERS_MAX:
                self._refuse_head(f"more than {HEADERS_MAX} headers")
                raise HeadTooLargeError

    def on_headers_complete(self) -> None:
        """Take the head if it is not too large."""
        self._is_in_head = False
        if self._silent_bytes > HEAD_BYTES_SURE:
            self._check_head()
        self._silent_bytes = 0
        self._head_alarm.stop()
        parser = self._parser
        headers = dict(reversed(self._headers))
        address = httptools.parse_url(self._url)
        # Only a whole address, with its scheme, may leave the path to be guessed.
        path = (address.path or (b"/" if address.schema else b"")).decode("ascii")
        if not path:
            raise ValueError("a request has a path")
        exchange = Exchange(
            self,
            parser.get_method().decode("ascii"),
            unquote(path) if "%" in path else path,
            address.query or b"",
            headers,
        )
        is_older = parser.get_http_version() == "1.0"
        if not (self._has_one_host(headers) or is_older):
            # Some proxy may take it for another request than we do (RFC 9112, 3.2).
            text = "a request has one Host header"
            self._refusal = (HTTPStatus.BAD_REQUEST, text, "protocol_error")
            raise ValueError(text)
        exchange.is_kept_alive = parser.should_keep_alive() and not is_older
        if b"expect" in headers:
            expected = [value.lower() for name, value in self._headers if name == b"expect"]
            exchange.is_held_back = b"100-continue" in expected and not is_older
        is_free = self._is_idle and self.takes_replies
        self._latest = exchange
        if is_free:
            self._running = self._fresh = exchange
        else:
            self._queue.append(exchange)

    def _has_one_host(self, headers: Headers) -> bool:
        if len(headers) == len(self._headers):
            return b"host" in headers
        return [name for name, _ in self._headers].count(b"host") == 1

    def _check_head(self) -> None:
        size = len(self._url) + sum([len(name) + len(value) + 4 for name, value in self._headers])
        if size > HEAD_BYTES_MAX:
            self._refuse_head()
            raise HeadTooLargeError

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body; what is left of one that was refused is thrown away."""
        self._silent_bytes = 0
        exchange = self._latest
        assert exchange is not None, "a body has a head"
        if not exchange.is_answered:
            exchange.put(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self._silent_bytes = 0
        assert self._latest is not None, "an end has a head"
        self._latest.end()

    # What requests ask for.

    def _begin_next(self) -> None:
        """Answer the next request; without a task, when other connections had their turn."""
        self._running = exchange = self._queue.popleft()
        if self._is_quick(exchange):
            self._loop.call_soon(self._begin_at_once, exchange)
        else:
            self._begin(exchange)

    def _begin_fresh(self) -> None:
        exchange, self._fresh = self._fresh, None
        assert exchange is not None, "there is one"
        if self._is_quick(exchange):
            self._begin_at_once(exchange)
        else:
            self._begin(exchange)

    def _is_quick(self, exchange: Exchange) -> bool:
        """Return True if a request is here whole and mostly waits for nothing but a sync."""
        is_small = exchange.is_whole and exchange.size <= BODY_BYTES_AHEAD
        return is_small and self._hub.app.is_quick(exchange)

    def _begin(self, exchange: Exchange) -> None:
        self._track(self._loop.create_task(self._answer(exchange)))

    def _begin_at_once(self, exchange: Exchange) -> None:
        """Answer a request in this step, or from the end of what it waits for."""
        if exchange.is_gone:
            return
        app = self._hub.app
        begun = app.begin(exchange, partial(self._reply, exchange))
        if not isinstance(begun, bool):
            self._reply(exchange, begun)
        elif not begun and app.is_started(exchange):
            started = Started(self._answer(exchange))
            if not started.is_done:
                self._track(follow(started))
        elif not begun:
            self._begin(exchange)

    def _track(self, under_way: asyncio.Future[None]) -> None:
        self._task = under_way
        self._hub.tasks.add(under_way)
        under_way.add_done_callback(self._hub.tasks.discard)

    def _reply(self, exchange: Exchange, response: Response) -> None:
        """Send the small reply of a request that had no task."""
        if not exchange.send_at_once(response):
            self._track(self._loop.create_task(exchange.send(response)))

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self._hub.app.answer(exchange)
        except asyncio.CancelledError:
            if self._ended is None or self._transport.is_closing():
                raise
            error, self._ended = self._ended, None
            await exchange.send(error_reply(error))
        except Exception:
            log.exception(LogEvent.REPLY_NOT_SENT)
            self.abort()

    def rejudge(self) -> None:
        """End the request that waits for something if it is permitted no more."""
        running, task = self._running, self._task
        if running is None or task is None or task.done() or self._is_sending:
            return
        self._ended = refusal_of(running)
        if self._ended is not None:
            task.cancel()

    def go_on(self, exchange: Exchange) -> None:
        """Let more of a request come."""
        if self._transport.is_closing():
            return
        if exchange.is_held_back:
            exchange.is_held_back = False
            self._transport.write(_GO_ON)
        self._take_in()

    async def writable(self) -> None:
        """Return when the peer has read most of what waits for it, or is gone."""
        while self._writable is not None:
            await self._writable

    def write(self, data: bytes) -> None:
        """Send bytes, or have them wait for the peer."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def head(self, response: Response, *, is_last: bool) -> bytes:
        """Return the head of a reply."""
        self._is_sending = True
        return response.head + self._hub.date + (_CLOSE if is_last else b"") + b"\r\n"

    def finish(self, exchange: Exchange) -> None:
        """Take the next request, now that one has its reply; or close."""
        self._is_sending = False
        self._running = None
        if not exchange.is_kept_alive:
            self._close()
        if self._transport.is_closing():
            return
        if self._queue:
            # Otherwise it begins when the peer has read what is there.
            if self.takes_replies:
                self._begin_next()
        elif self._is_deaf:
            self._send_refusal()
        else:
            self._idle_alarm.start()
        if self._unparsed or self._is_paused or self._is_deaf:
            self._take_in()

    def _pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    # Ending.

    def shutdown(self) -> None:
        """Close when what has come in is answered."""
        if self._latest is None or self._latest.is_answered:
            self._close()
        else:
            self._latest.is_kept_alive = False

    def abort(self) -> None:
        """Close without sending what is left."""
        self._transport.abort()

    def _close(self) -> None:
        """Close when what was written has gone out, which has its time, too."""
        self._transport.close()
        self._end_alarm.start()

    def _refuse(self, text: str) -> None:
        """Answer what is no request, behind what came before it, and close."""
        self._is_deaf = True
        self._refusal = self._refusal or (HTTPStatus.BAD_REQUEST, text, "protocol_error")
        if self._queue and not self._queue[-1].is_whole:
            # It is the one that cannot be read any further.
            self._queue.pop()
        running = self._running
        if not self._queue and (running is None or not running.is_whole):
            self._send_refusal()

    def _send_refusal(self) -> None:
        if self._refusal is not None and not self._is_sending:
            status, text, code = self._refusal
            reply = refusal(status, text, code=code)
            self._transport.write(self.head(reply, is_last=True) + reply.body)
        self._close()

    def _refuse_head(self, reason: str = "") -> None:
        too_large = f"the head of the request is too large; the limit is {HEAD_BYTES_MAX} bytes"
        text = reason or too_large
        self._refusal = (HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text, HEAD_TOO_LARGE)
