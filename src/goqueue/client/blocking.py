"""A blocking connection for synchronous readers, and for who waits for every publish.

A reader that is busy decoding must not share its interpreter with a thread that receives: they
would take the lock from each other in slices of milliseconds. So it receives by itself; while it
decodes, the next reply, already asked for, gathers in the socket's buffer.
"""

import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from goqueue.base.buffers import BufferPool
from goqueue.base.errors import (
    ConnectionLostError,
    DeadlineExceededError,
    GoQueueError,
    ProtocolError,
    from_code,
)
from goqueue.base.units import KiB, MiB
from goqueue.client.in_place import is_local
from goqueue.client.link import REPLY_BYTES_MAX, Answer, hello, parse_address
from goqueue.client.reader import FOLLOW_WAIT_MS
from goqueue.wire import calls
from goqueue.wire.packet import HEAD_BYTES, Buffer, Kind, Operation, encode_packet

RECEIVE_BUFFER_BYTES: Final = 4 * MiB
_buffers: Final = BufferPool(kept_max=3, kept_bytes_max=5 * MiB)
"""What replies were received into, kept for those of any connection."""

JOINED_BYTES_MAX: Final = 64 * KiB
"""Up to this much, one copy costs less than to hand over many buffers."""
SECONDS_MIN: Final = 0.001
"""No time at all would mean not to wait, and less is refused."""
GATHERED_BUFFERS_MAX: Final = 1_024
"""As many buffers as the system takes at once."""

_HEAD: Final = struct.Struct(">IBBII")
_encode: Final = msgspec.msgpack.Encoder().encode


class Reply(NamedTuple):
    """What came back, and for which request; 0 where it is for the whole connection."""

    correlation: int
    outcome: Answer | GoQueueError


class BlockingLink:
    """One connection. Who has several requests under way tells replies by their correlation."""

    def __init__(self, address: str, *, timeout_s: float, api_key: str | None = None) -> None:
        self._address = parse_address(address)
        self._timeout_s = self._timeout_s_max = timeout_s
        self._patience_s = FOLLOW_WAIT_MS / 1_000
        """How much longer a reply may take, because the broker waits for messages."""
        self._api_key = api_key
        self._socket: socket.socket | None = None
        self._correlation = 0

    @property
    def is_local(self) -> bool:
        """Whether the broker is on this machine, as far as can be seen from a connection."""
        return self._socket is not None and is_local(self._socket)

    def __repr__(self) -> str:
        return f"<BlockingLink {self._address[0]}:{self._address[1]}>"

    def limit(self, seconds: float) -> None:
        """Wait no longer than this for what is asked from now on, nor than is usual."""
        self._timeout_s = min(max(seconds, SECONDS_MIN), self._timeout_s_max)
        self._patience_s = 0.0
        if self._socket is not None:
            self._socket.settimeout(self._timeout_s)

    def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request and wait for its reply."""
        self.send(operation, header, payload)
        return self.receive()

    def send(self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()) -> int:
        """Send a request and return its correlation; ``receive`` returns its reply."""
        connection = self._socket or self._connect()
        self._correlation = self._correlation % 0xFFFF_FFFF + 1
        buffers = encode_packet(
            operation=operation,
            kind=Kind.REQUEST,
            correlation=self._correlation,
            header=_encode(header),
            payload=payload,
        )
        try:
            send_all(connection, buffers)
        except OSError as error:
            raise self._lost(error) from error
        return self._correlation

    def receive(self, on_header: Callable[[Buffer], None] | None = None) -> Answer:
        """Wait for the reply to the request sent first; its payload comes after ``on_header``.

        What that sends is under way while the payload is received.
        """
        outcome = self.receive_any(on_header).outcome
        if isinstance(outcome, GoQueueError):
            raise outcome
        return outcome

    def receive_any(self, on_header: Callable[[Buffer], None] | None = None) -> Reply:
        """Wait for the next reply, whichever request it is for."""
        head = self._read(HEAD_BYTES)
        size, _, kind, correlation, header_size = _HEAD.unpack(head)
        if size > REPLY_BYTES_MAX or HEAD_BYTES - 4 + header_size > size:
            self.close()
            raise ProtocolError(f"reply declares {size} bytes; the limit is {REPLY_BYTES_MAX}")
        # Apart, so that the payload begins where memory begins and Arrow finds it aligned.
        header = self._read(header_size)
        if on_header is not None and kind == Kind.REPLY:
            on_header(header)
        payload = self._read(size - (HEAD_BYTES - 4) - header_size)
        if kind == Kind.ERROR:
            failure = msgspec.msgpack.decode(header, type=calls.Failure)
            if correlation == 0:
                self.close()
            return Reply(correlation, from_code(failure.code, failure.message))
        return Reply(correlation, Answer(header, payload))

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
        connection.settimeout(self._timeout_s + self._patience_s)
        self._socket = connection
        try:
            self.request(Operation.HELLO, hello(self._api_key))
        except BaseException:
            self.close()
            raise
        return connection

    def _read(self, size: int) -> memoryview:
        """Receive exactly so many bytes."""
        connection = self._socket
        if connection is None:
            raise ConnectionLostError("connection lost: it was closed")
        view = _buffers.take(size) if size else memoryview(b"")
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


def send_all(connection: socket.socket, buffers: Sequence[Buffer]) -> None:
    """Send buffers one behind the other; large ones are not put together first."""
    if sum(map(len, buffers)) <= JOINED_BYTES_MAX:
        connection.sendall(b"".join(buffers))
        return
    left = deque(memoryview(buffer).cast("B") for buffer in buffers if len(buffer))
    timeout_s = connection.gettimeout()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        while left:
            if deadline is not None:
                # The time is for all of it, however little at a time is taken.
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
            sent = connection.sendmsg(islice(left, GATHERED_BUFFERS_MAX))
            while left and sent >= len(left[0]):
                sent -= len(left.popleft())
            if sent:
                left[0] = left[0][sent:]
            if left and deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("timed out")
    finally:
        connection.settimeout(timeout_s)
