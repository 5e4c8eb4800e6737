"""A link to a broker: requests out, replies back, reconnecting as needed."""

import asyncio
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import msgspec

from goqueue.base.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineExceededError,
    InvalidRequestError,
    from_code,
)
from goqueue.base.units import MiB
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Kind, Operation, Packet, PacketReader, encode_packet

REPLY_BYTES_MAX: Final = 64 * MiB
BACKOFF_SECONDS: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 2.0
DEFAULT_PORT: Final = 7070

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_failure: Final = msgspec.msgpack.Decoder(calls.Failure).decode

ReplyHeader = TypeVar("ReplyHeader", bound=calls.Call)


class Answer(NamedTuple):
    """A reply as it came: its header still encoded, its payload a view."""

    header: Buffer
    payload: memoryview


class Link(Protocol):
    """Something that answers requests."""

    async def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request and return its reply, or raise what the broker raised."""
        ...

    async def close(self) -> None:
        """End the link."""
        ...


class _Connection(asyncio.Protocol):
    """One TCP connection: correlates replies with requests."""

    def __init__(self) -> None:
        self._reader = PacketReader(REPLY_BYTES_MAX)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._transport: asyncio.Transport | None = None
        self._correlation = 0
        self._reason = "the connection was closed"
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is one by shape, not by inheritance.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        for packet in self._reader.feed(data):
            self._settle(packet)

    def _settle(self, packet: Packet) -> None:
        if packet.correlation == 0:
            self._reason = _decode_failure(packet.header).message
            return
        future = self._waiting.pop(packet.correlation, None)
        if future is None or future.done():
            return
        if packet.kind == Kind.ERROR:
            failure = _decode_failure(packet.header)
            future.set_exception(from_code(failure.code, failure.message))
        else:
            future.set_result(Answer(packet.header, packet.payload))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._transport = None
        error = ConnectionLostError(f"connection lost: {exc or self._reason}")
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)

    def send(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer]
    ) -> asyncio.Future[Answer]:
        if self._transport is None:
            raise ConnectionLostError(f"connection lost: {self._reason}")
        self._correlation = self._correlation % 0xFFFF_FFFF + 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[self._correlation] = future
        self._transport.writelines(
            encode_packet(
                operation=operation,
                kind=Kind.REQUEST,
                correlation=self._correlation,
                header=_encode(header),
                payload=payload,
            )
        )
        return future

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class NativeLink:
    """A TCP link. One connection, made on first use and again after it was lost."""

    def __init__(
        self, address: str, *, timeout_s: float = 30.0, api_key: str | None = None
    ) -> None:
        self._host, self._port = parse_address(address)
        self._timeout_s = timeout_s
        self._api_key = api_key
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<NativeLink {self._host}:{self._port}>"

    async def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Send a request and return its reply. A lost connection is not retried here."""
        connection = self._connection
        if connection is None or not connection.is_open:
            connection = await self._connect()
        return await connection.send(operation, header, payload)

    async def close(self) -> None:
        """End the connection."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _connect(self) -> _Connection:
        if self._is_closed:
            raise ClosedError("the client was closed")
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._open())
            self._connecting.add_done_callback(self._connected)
        return await asyncio.shield(self._connecting)

    def _connected(self, task: "asyncio.Task[_Connection]") -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    async def _open(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await loop.create_connection(_Connection, self._host, self._port)
                hello = calls.Hello(
                    calls.PROTOCOL_VERSION, f"goqueue-python/{version('goqueue')}", self._api_key
                )
                await connection.send(Operation.HELLO, hello, ())
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"no answer from {self._host}:{self._port} in {self._timeout_s:g} s"
            ) from error
        except OSError as error:
            raise ConnectionLostError(
                f"cannot reach a broker at {self._host}:{self._port}: {error}"
            ) from error
        return connection


def parse_address(address: str) -> tuple[str, int]:
    """Read ``host:port``, ``host`` or ``goqueue://host:port``."""
    text = address.removeprefix("goqueue://").rstrip("/")
    if "://" in text:
        raise InvalidRequestError(
            f"{address!r} is not a native address; write host:port, for example 127.0.0.1:7070"
        )
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:  # noqa: PLR2004
        raise InvalidRequestError(f"{address!r} has no valid port; write host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


async def call(
    link: Link,
    operation: Operation,
    header: calls.Call,
    kind: type[ReplyHeader],
    *,
    timeout_s: float,
) -> ReplyHeader:
    """Make a call without payload; a lost connection is tried again until the time is over.

    Only for calls that may safely be made twice.
    """
    answer = await retry(lambda: link.request(operation, header), timeout_s=timeout_s)
    return decode(answer.header, kind)


async def retry(attempt: Callable[[], Any], *, timeout_s: float) -> Any:  # noqa: ANN401
    """Repeat an attempt that lost its connection, with growing pauses, until the time is over."""
    backoff_s = BACKOFF_SECONDS
    lost: ConnectionLostError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return await attempt()
                except ConnectionLostError as error:
                    lost = error
                    await asyncio.sleep(backoff_s)
                    backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)
    except TimeoutError as error:
        raise lost or DeadlineExceededError(f"no answer in {timeout_s:g} s") from error


def decode(header: Buffer, kind: type[ReplyHeader]) -> ReplyHeader:
    """Read a reply's header."""
    return msgspec.msgpack.decode(header, type=kind)
