"""A blocking connection for threads that wait for replies themselves (ADR 0004).

A reader that is busy decoding must not share its interpreter with a thread that receives: they
would take the lock from each other in slices of milliseconds. So it receives by itself; while it
decodes, the next reply, already asked for, gathers in the socket's buffer.
"""

import contextlib
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from goqueue.base.buffers import BufferPool
from goqueue.base.errors import ConnectionLostError, DeadlineExceededError, GoQueueError
from goqueue.base.units import KiB, MiB
from goqueue.client.blocking.brief import brief
from goqueue.client.blocking.in_place import is_local
from goqueue.client.dial import Dial
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.exchange import (
    Answer,
    Exchange,
    Reply,
    UnreachableError,
    decode,
    hello,
    parse_address,
)
from goqueue.client.protocol.fetching import FOLLOW_WAIT_MS
from goqueue.client.tls import explain
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Operation

RECEIVE_BUFFER_BYTES: Final = 4 * MiB
_buffers: Final = BufferPool(kept_max=3, kept_bytes_max=5 * MiB)
"""What replies were received into, kept for those of any connection."""

JOINED_BYTES_MAX: Final = 64 * KiB
"""Up to this much, one copy costs less than to hand over many buffers."""
SECONDS_MIN: Final = 0.001
"""No time at all would mean not to wait, and less is refused."""
GATHERED_BUFFERS_MAX: Final = 1_024
"""As many buffers as the system takes at once."""


class ChannelRequest(NamedTuple):
    """A request without payload, and the node it is for; none where there is one broker."""

    operation: Operation
    header: calls.Call
    node: str = ""


OnHeader = Callable[[Buffer], None]


class BlockingLink:
    """One connection, made on first use and again after it was lost.

    Who has several requests under way tells replies by their correlation.
    """

    cluster: ClusterView | None = None

    def __init__(self, address: str, dial: Dial) -> None:
        self._address = parse_address(address)
        self._dial = dial
        self._timeout_s = self._timeout_s_max = dial.timeout_s
        self._patience_s = FOLLOW_WAIT_MS / 1_000
        """How much longer a reply may take, because the broker waits for messages."""
        self._socket: socket.socket | None = None
        self._exchange = Exchange(self._where)
        self._arrived: deque[Reply] = deque()
        self._features: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"<BlockingLink {self._where}>"

    @property
    def _where(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    @property
    def address(self) -> str:
        """Where it leads."""
        return self._where

    @property
    def connection(self) -> socket.socket | None:
        """The connection, as long as there is one."""
        return self._socket

    @property
    def is_local(self) -> bool:
        """Whether the broker is on this machine, as far as can be seen from a connection."""
        return self._socket is not None and is_local(self._socket)

    @property
    def holds_bytes(self) -> bool:
        """Return True if bytes were received that the system does not know of any more."""
        connection = self._socket
        return isinstance(connection, ssl.SSLSocket) and connection.pending() > 0

    def learn_features(self) -> Sequence[str]:
        """Connect if that has not been done; return what the broker can do beyond the protocol."""
        if self._socket is None:
            self._connect()
        return self._features

    def limit(self, seconds: float) -> None:
        """Wait no longer than this for what is asked from now on, nor than is usual."""
        timeout_s = min(max(seconds, SECONDS_MIN), self._timeout_s_max)
        is_new = timeout_s != self._timeout_s or self._patience_s
        self._timeout_s, self._patience_s = timeout_s, 0.0
        if is_new and self._socket is not None:
            self._socket.settimeout(timeout_s)

    def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request and wait for its reply."""
        self.send(operation, header, payload)
        return self.receive()

    def send(self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()) -> int:
        """Send a request and return its correlation; ``receive`` returns its reply."""
        connection = self._socket or self._connect()
        correlation, buffers = self._exchange.request(operation, header, payload)
        self._write(connection, buffers)
        return correlation

    def send_to(
        self,
        node: str,
        operation: Operation,
        header: calls.Call,
        payload: Sequence[Buffer] = (),
    ) -> int:
        """Send a request to the one broker there is."""
        del node
        return self.send(operation, header, payload)

    def refresh_soon(self) -> None:
        """Ask nothing: there is one broker."""

    def receive_within(self, seconds: float) -> Reply | None:
        """Wait so long for the next reply, whichever request it is for."""
        connection = self._socket
        if not self._arrived and connection is not None and not self.holds_bytes:
            ready, _, _ = select.select([connection], [], [], max(seconds, 0))
            if not ready:
                return None
        return self.receive_any()

    def send_many(self, requests: Sequence[ChannelRequest]) -> list[int]:
        """Send requests without payload in one go; return their correlations."""
        connection = self._socket or self._connect()
        packets = [self._exchange.request(one.operation, one.header) for one in requests]
        self._write(connection, [buffer for _, buffers in packets for buffer in buffers])
        return [correlation for correlation, _ in packets]

    def receive(self, on_header: OnHeader | None = None) -> Answer:
        """Wait for the reply to the request sent first; its payload comes after ``on_header``.

        What that sends is under way while the payload is received.
        """
        outcome = self.receive_any(on_header).outcome
        if isinstance(outcome, GoQueueError):
            raise brief(outcome)
        return outcome

    def receive_any(self, on_header: OnHeader | None = None) -> Reply:
        """Wait for the next reply, whichever request it is for."""
        while not self._arrived:
            self.advance()
            if on_header is not None and (header := self._exchange.arriving) is not None:
                on_header(header)
                on_header = None
        reply = self.take()
        assert reply is not None, "it has arrived"
        if on_header is not None and isinstance(reply.outcome, Answer):
            on_header(reply.outcome.header)
        return reply

    def take(self) -> Reply | None:
        """Return the next reply that has arrived whole, if there is one."""
        if not self._arrived:
            return None
        reply = self._arrived.popleft()
        if not reply.correlation and isinstance(reply.outcome, GoQueueError):
            # The broker gives up the whole connection.
            self.close()
            raise reply.outcome
        return reply

    def advance(self) -> None:
        """Receive once, waiting for bytes as long as a reply may take."""
        connection = self._socket
        if connection is None:
            raise ConnectionLostError("connection lost: it was closed")
        try:
            count = connection.recv_into(self._exchange.buffer())
            self._arrived.extend(self._exchange.received(count))
        except TimeoutError as error:
            self.close()
            raise DeadlineExceededError(f"no answer in {self._timeout_s:g} s") from error
        except (OSError, ValueError) as error:
            raise self._lost(error) from error
        except BaseException:
            # No broker; or a signal came between receiving bytes and counting them.
            self.close()
            raise
        if count == 0:
            raise self._lost("the broker closed it")

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
            reason = f"cannot reach a broker at {self._where}: {error}"
            raise UnreachableError(reason) from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        connection = self._secured(connection)
        connection.settimeout(self._timeout_s + self._patience_s)
        self._exchange = Exchange(self._where, allocate=_buffers.take)
        self._arrived.clear()
        self._socket = connection
        try:
            answer = self.request(Operation.HELLO, hello(self._dial.api_key))
            self._features = decode(answer.header, calls.HelloReply).features
        except BaseException:
            self.close()
            raise
        return connection

    def _secured(self, connection: socket.socket) -> socket.socket:
        """Return a connection that may be shown the key."""
        tls = self._dial.tls
        try:
            if tls is None:
                self._dial.check_secrecy(connection.getpeername()[0], connection.getsockname()[0])
                return connection
            context, name = tls.context(), tls.name_for(self._address[0])
            secured = context.wrap_socket(connection, server_hostname=name)
            connection = secured
            tls.check(secured.getpeercert(binary_form=True), self._where)
        except (OSError, ValueError) as error:
            connection.close()
            reason = f"cannot reach a broker at {self._where}: {error}"
            if isinstance(error, ssl.SSLError):
                raise explain(error, self._where) from error
            raise UnreachableError(reason) from error
        except BaseException:
            connection.close()
            raise
        return secured

    def _write(self, connection: socket.socket, buffers: Sequence[Buffer]) -> None:
        try:
            send_all(connection, buffers)
        except OSError as error:
            raise self._lost(error) from error
        except BaseException:
            # Half a request may be out.
            self.close()
            raise

    def _lost(self, reason: object) -> GoQueueError:
        self.close()
        return ConnectionLostError(f"connection lost: {reason}")


def send_all(connection: socket.socket, buffers: Sequence[Buffer]) -> None:
    """Send buffers one behind the other; large ones are not put together first."""
    if sum(map(len, buffers)) <= JOINED_BYTES_MAX:
        connection.sendall(b"".join(buffers))
        return
    if isinstance(connection, ssl.SSLSocket):
        # It takes one buffer at a time, and cuts it into records of 16 KiB.
        for buffer in buffers:
            connection.sendall(buffer)
        return
    _send_gathered(connection, buffers)


def _send_gathered(connection: socket.socket, buffers: Sequence[Buffer]) -> None:
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
