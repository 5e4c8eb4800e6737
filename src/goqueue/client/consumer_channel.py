"""The blocking connection of a synchronous consumer: several requests under way at once.

Polls and settlements go out in one write, replies come as they come. The consuming thread receives
by itself (ADR 0004); ``wake`` makes a thread that waits for a reply look up.
"""

import contextlib
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from threading import Condition
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np

from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    GoQueueError,
    ProtocolError,
    from_code,
)
from goqueue.client.blocking import RECEIVE_BUFFER_BYTES
from goqueue.client.kept_frames import KeptFrames
from goqueue.client.link import REPLY_BYTES_MAX, Answer, Link, hello, parse_address
from goqueue.client.loop_thread import LoopThread
from goqueue.wire import calls
from goqueue.wire.packet import HEAD_BYTES, Kind, Operation, encode_packet

_HEAD: Final = struct.Struct(">IBBII")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_failure: Final = msgspec.msgpack.Decoder(calls.Failure).decode

Request = tuple[Operation, calls.Call]


class Reply(NamedTuple):
    """What came back for a request."""

    correlation: int
    answer: Answer | None
    error: GoQueueError | None = None


class Channel(Protocol):
    """Sends requests now, returns replies later, in any order. One thread at a time."""

    @property
    def kept(self) -> KeptFrames | None:
        """Return the frames that replies of this connection may speak of; None if they do not."""
        ...

    def send(self, requests: Sequence[Request]) -> list[int]:
        """Send requests in one go; return their correlations."""
        ...

    def receive(self, timeout_s: float) -> Reply | None:
        """Return the next reply, or None when the time is over or somebody called ``wake``."""
        ...

    def wake(self) -> None:
        """Let a thread that waits in ``receive`` return; from any thread."""
        ...

    def close(self) -> None:
        """Give up the connection; the next request makes a new one."""
        ...

    def end(self) -> None:
        """Release everything; there is no next request."""
        ...


class SocketChannel:
    """A TCP connection, made on first use and again after it was lost."""

    def __init__(self, address: str, *, timeout_s: float, api_key: str | None = None) -> None:
        self._address = parse_address(address)
        self._timeout_s = timeout_s
        self._api_key = api_key
        self._socket: socket.socket | None = None
        self._correlation = 0
        self._receiving: _Receiving | None = None
        self.kept = KeptFrames()
        self._bell, self._ear = socket.socketpair()
        self._bell.settimeout(0)
        self._ear.settimeout(0)

    def __repr__(self) -> str:
        return f"<SocketChannel {self._address[0]}:{self._address[1]}>"

    def send(self, requests: Sequence[Request]) -> list[int]:
        """Send requests in one go; return their correlations."""
        connection = self._socket or self._connect()
        try:
            return self._send(connection, requests)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:
            # Half a request may be out.
            self.close()
            raise

    def _send(self, connection: socket.socket, requests: Sequence[Request]) -> list[int]:
        correlations: list[int] = []
        pieces: list[bytes] = []
        for operation, header in requests:
            self._correlation = self._correlation % 0xFFFF_FFFF + 1
            correlations.append(self._correlation)
            pieces += encode_packet(  # type: ignore[arg-type]
                operation=operation,
                kind=Kind.REQUEST,
                correlation=self._correlation,
                header=_encode(header),
            )
        connection.sendall(b"".join(pieces))
        return correlations

    def receive(self, timeout_s: float) -> Reply | None:
        """Return the next reply, or None when the time is over or somebody called ``wake``."""
        connection = self._socket
        if connection is None:
            raise ConnectionLostError("connection lost: it was closed")
        try:
            return self._receive(connection, timeout_s)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:
            # A signal may have come between receiving bytes and counting them.
            self.close()
            raise

    def _receive(self, connection: socket.socket, timeout_s: float) -> Reply | None:
        receiving = self._receiving
        assert receiving is not None, "connected"
        while (reply := receiving.advance(connection)) is None:
            if receiving.is_ended:
                raise self._lost("the broker closed it")
            if timeout_s <= 0 or not self._wait(connection, timeout_s):
                return None
        if reply.correlation == 0:
            self.close()
            raise ConnectionLostError(f"connection lost: {reply.error}")
        return reply

    def _wait(self, connection: socket.socket, timeout_s: float) -> bool:
        """Wait for bytes; tell whether there are some."""
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        poll.register(self._ear, select.POLLIN)
        ready = {place for place, _ in poll.poll(timeout_s * 1_000)}
        if self._ear.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(1_024)
            return False
        return bool(ready)

    def wake(self) -> None:
        """Let a thread that waits in ``receive`` return; from any thread."""
        with contextlib.suppress(OSError):
            self._bell.send(b"!")

    def close(self) -> None:
        """Give up the connection; the next request makes a new one."""
        connection, self._socket = self._socket, None
        self._receiving = None
        self.kept = KeptFrames()
        if connection is not None:
            connection.close()

    def end(self) -> None:
        """Release everything; there is no next request."""
        self.close()
        self._bell.close()
        self._ear.close()

    def _connect(self) -> socket.socket:
        try:
            connection = socket.create_connection(self._address, self._timeout_s)
        except OSError as error:
            host, port = self._address
            raise ConnectionLostError(f"cannot reach a broker at {host}:{port}: {error}") from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            self._greet(connection)
        except OSError as error:
            connection.close()
            raise ConnectionLostError(f"connection lost: {error}") from error
        except BaseException:
            connection.close()
            raise
        self._socket = connection
        return connection

    def _greet(self, connection: socket.socket) -> None:
        self._send(connection, [(Operation.HELLO, hello(self._api_key))])
        self._receiving = receiving = _Receiving()
        connection.settimeout(self._timeout_s)
        reply: Reply | None = None
        while reply is None:
            reply = receiving.advance(connection, is_blocking=True)
            if receiving.is_ended:
                raise ConnectionLostError("connection lost: the broker closed it")
        if reply.error is not None:
            raise reply.error
        # With a timeout of its own, Python would wait before it receives, whatever the flags say.
        connection.settimeout(None)
        seconds = struct.pack("ll", int(self._timeout_s) + 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)

    def _lost(self, reason: object) -> GoQueueError:
        self.close()
        return ConnectionLostError(f"connection lost: {reason}")


class _Receiving:
    """Gathers one reply after the other, as far as bytes are there."""

    def __init__(self) -> None:
        self.is_ended = False
        self._parts = [HEAD_BYTES]
        self._found: list[memoryview] = []
        self._view = memoryview(bytearray(HEAD_BYTES))
        self._position = 0
        self._head = (0, 0, 0, 0, 0)

    def advance(self, connection: socket.socket, *, is_blocking: bool = False) -> Reply | None:
        """Take what is there; return a reply when it is whole."""
        flags = 0 if is_blocking else socket.MSG_DONTWAIT
        while True:
            while self._position < len(self._view):
                try:
                    count = connection.recv_into(self._view[self._position :], 0, flags)
                except (BlockingIOError, InterruptedError):
                    return None
                if count == 0:
                    self.is_ended = True
                    return None
                self._position += count
            if (reply := self._piece()) is not None:
                return reply

    def _piece(self) -> Reply | None:
        """Take a whole piece: the head, the header or the payload."""
        self._found.append(self._view)
        if len(self._found) == 1:
            self._head = size, _, _, _, header_size = _HEAD.unpack(self._view)
            if size > REPLY_BYTES_MAX or HEAD_BYTES - 4 + header_size > size:
                raise ProtocolError(f"reply declares {size} bytes; the limit is {REPLY_BYTES_MAX}")
            self._expect(header_size)
            return None
        size, _, kind, correlation, header_size = self._head
        if len(self._found) == 2:  # noqa: PLR2004 - head and header are there
            # Apart, so that the payload begins where memory begins and Arrow finds it aligned.
            self._expect(size - (HEAD_BYTES - 4) - header_size)
            return None
        _, header, payload = self._found
        self._found = []
        self._expect(HEAD_BYTES)
        if kind == Kind.ERROR:
            failure = _decode_failure(header)
            return Reply(correlation, None, from_code(failure.code, failure.message))
        return Reply(correlation, Answer(header, payload))

    def _expect(self, size: int) -> None:
        # Into memory nobody had to clear first.
        self._view = np.empty(size, np.uint8).data if size else memoryview(b"")
        self._position = 0


class EmbeddedChannel:
    """Requests to a broker in this process, which works in the client's loop."""

    kept: KeptFrames | None = None

    def __init__(self, link: Link, thread: LoopThread) -> None:
        self._link = link
        self._thread = thread
        self._correlation = 0
        self._replies: deque[Reply] = deque()
        self._pending: set[Future[Answer]] = set()
        self._news = Condition()
        self._is_woken = False

    def __repr__(self) -> str:
        return f"<EmbeddedChannel to {self._link!r}>"

    def send(self, requests: Sequence[Request]) -> list[int]:
        """Send requests; return their correlations."""
        correlations: list[int] = []
        for operation, header in requests:
            self._correlation += 1
            correlation = self._correlation
            correlations.append(correlation)
            future = self._thread.submit(self._link.request(operation, header))
            self._pending.add(future)
            future.add_done_callback(partial(self._settle, correlation))
        return correlations

    def _settle(self, correlation: int, future: "Future[Answer]") -> None:
        self._pending.discard(future)
        try:
            reply = Reply(correlation, future.result())
        except GoQueueError as error:
            reply = Reply(correlation, None, error)
        except CancelledError:
            reply = Reply(correlation, None, ClosedError("the client was closed"))
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            reply = Reply(correlation, None, GoQueueError(f"the broker failed: {error}"))
        with self._news:
            self._replies.append(reply)
            self._news.notify_all()

    def receive(self, timeout_s: float) -> Reply | None:
        """Return the next reply, or None when the time is over or somebody called ``wake``."""
        with self._news:
            if not self._replies and timeout_s > 0:
                self._news.wait_for(lambda: self._replies or self._is_woken, timeout_s)
                self._is_woken = False
            return self._replies.popleft() if self._replies else None

    def wake(self) -> None:
        """Let a thread that waits in ``receive`` return; from any thread."""
        with self._news:
            self._is_woken = True
            self._news.notify_all()

    def close(self) -> None:
        """Give up what is under way."""
        for future in list(self._pending):
            future.cancel()

    def end(self) -> None:
        """Release everything; there is no next request."""
        self.close()
