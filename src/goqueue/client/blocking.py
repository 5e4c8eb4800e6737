"""A blocking connection for synchronous readers.

A reader that is busy decoding must not share its interpreter with a thread that receives: they
would take the lock from each other in slices of milliseconds. So it receives by itself; while it
decodes, the next reply, already asked for, gathers in the socket's buffer.
"""

import contextlib
import socket
import struct
from typing import Final

import msgspec
import numpy as np

from goqueue.base.errors import (
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    ProtocolError,
    from_code,
)
from goqueue.client.link import REPLY_BYTES_MAX, Answer, hello, parse_address
from goqueue.client.reader import FOLLOW_WAIT_MS
from goqueue.wire import calls
from goqueue.wire.packet import HEAD_BYTES, Kind, Operation, encode_packet

RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
_HEAD: Final = struct.Struct(">IBBII")
_encode: Final = msgspec.msgpack.Encoder().encode


class BlockingLink:
    """One connection, one request under way at a time."""

    def __init__(self, address: str, *, timeout_s: float, api_key: str | None = None) -> None:
        self._address = parse_address(address)
        self._timeout_s = timeout_s
        self._api_key = api_key
        self._socket: socket.socket | None = None
        self._correlation = 0

    def __repr__(self) -> str:
        return f"<BlockingLink {self._address[0]}:{self._address[1]}>"

    def request(self, operation: Operation, header: calls.Call) -> Answer:
        """Send a request and wait for its reply."""
        self.send(operation, header)
        return self.receive()

    def send(self, operation: Operation, header: calls.Call) -> None:
        """Send a request; ``receive`` returns its reply."""
        connection = self._socket or self._connect()
        self._correlation = self._correlation % 0xFFFF_FFFF + 1
        buffers = encode_packet(
            operation=operation,
            kind=Kind.REQUEST,
            correlation=self._correlation,
            header=_encode(header),
        )
        try:
            connection.sendall(b"".join(buffers))
        except OSError as error:
            raise self._lost(error) from error

    def receive(self) -> Answer:
        """Wait for the reply to the request sent last."""
        head = self._read(HEAD_BYTES)
        size, _, kind, correlation, header_size = _HEAD.unpack(head)
        if size > REPLY_BYTES_MAX or HEAD_BYTES - 4 + header_size > size:
            self.close()
            raise ProtocolError(f"reply declares {size} bytes; the limit is {REPLY_BYTES_MAX}")
        # Apart, so that the payload begins where memory begins and Arrow finds it aligned.
        header = self._read(header_size)
        payload = self._read(size - (HEAD_BYTES - 4) - header_size)
        if kind == Kind.ERROR:
            failure = msgspec.msgpack.decode(header, type=calls.Failure)
            if correlation == 0:
                self.close()
            raise from_code(failure.code, failure.message)
        return Answer(header, payload)

    def close(self) -> None:
        """End the connection; who waits for a reply in another thread is woken."""
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _connect(self) -> socket.socket:
        try:
            connection = socket.create_connection(self._address, self._timeout_s)
        except OSError as error:
            host, port = self._address
            raise ConnectionLostError(f"cannot reach a broker at {host}:{port}: {error}") from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        connection.settimeout(self._timeout_s + FOLLOW_WAIT_MS / 1_000)
        self._socket = connection
        try:
            self.request(Operation.HELLO, hello(self._api_key))
        except BaseException:
            self.close()
            raise
        return connection

    def _read(self, size: int) -> memoryview:
        """Receive exactly so many bytes, into memory nobody had to clear first."""
        connection = self._socket
        if connection is None:
            raise ConnectionLostError("connection lost: it was closed")
        view = np.empty(size, np.uint8).data if size else memoryview(b"")
        position = 0
        try:
            while position < size:
                count = connection.recv_into(view[position:])
                if count == 0:
                    raise self._lost("the broker closed it")
                position += count
        except TimeoutError as error:
            self.close()
            raise DeadlineExceededError(f"no answer in {self._timeout_s:g} s") from error
        except OSError as error:
            raise self._lost(error) from error
        return view

    def _lost(self, reason: object) -> GoQueueError:
        self.close()
        return ConnectionLostError(f"connection lost: {reason}")
