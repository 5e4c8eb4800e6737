"""Requests and replies of one connection, without the connection.

Every connection of the SDK has an ``Exchange``: it makes packets of requests and replies of what
comes back. How bytes travel, and who waits for them, is the business of the shells.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Final, NamedTuple, TypeVar

import msgspec

from goqueue.base.errors import (
    ConnectionLostError,
    GoQueueError,
    InvalidRequestError,
    ProtocolError,
    TooLargeError,
    WrongPortError,
    from_code,
)
from goqueue.base.limits import REQUEST_HEADER_BYTES_MAX
from goqueue.base.units import MiB
from goqueue.wire import calls
from goqueue.wire.complaint import HEADER_FAULTS, complaint
from goqueue.wire.packet import Buffer, Kind, Operation, Packet, PacketReader, encode_packet, fresh
from goqueue.wire.wrong_port import HTTP, explain_http

REPLY_BYTES_MAX: Final = 64 * MiB
BACKOFF_SECONDS: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 2.0
DEFAULT_PORT: Final = 7070

_encode: Final = msgspec.msgpack.Encoder().encode

ReplyHeader = TypeVar("ReplyHeader", bound=calls.Call)


class UnreachableError(ConnectionLostError):
    """There is no connection, so nothing was sent."""


class Answer(NamedTuple):
    """A reply as it came: its header still encoded, its payload a view."""

    header: Buffer
    payload: memoryview


class Reply(NamedTuple):
    """What came back, and for which request; 0 where it is for the whole connection."""

    correlation: int
    outcome: Answer | GoQueueError


class Exchange:
    """The requests and replies of one connection. Does no I/O."""

    def __init__(self, address: str, *, allocate: Callable[[int], memoryview] = fresh) -> None:
        self._address = address
        self._reader = PacketReader(
            REPLY_BYTES_MAX, header_bytes_max=REPLY_BYTES_MAX, allocate=allocate
        )
        self._correlation = 0

    def __repr__(self) -> str:
        return f"<Exchange with {self._address}: {self._correlation} requests>"

    def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> tuple[int, list[Buffer]]:
        """Return the correlation of a request, and what to write for it."""
        encoded = _encode(header)
        if len(encoded) > REQUEST_HEADER_BYTES_MAX:
            raise TooLargeError(
                f"header: {len(encoded)} bytes; the limit is {REQUEST_HEADER_BYTES_MAX}"
            )
        self._correlation = correlation = self._correlation % 0xFFFF_FFFF + 1
        return correlation, encode_packet(
            operation=operation,
            kind=Kind.REQUEST,
            correlation=correlation,
            header=encoded,
            payload=payload,
        )

    def feed(self, data: bytes) -> list[Reply]:
        """Take bytes off the stream; return the replies they complete."""
        try:
            return [_reply(packet) for packet in self._reader.feed(data)]
        except ProtocolError as error:
            raise self._explain(data, error) from error

    def buffer(self) -> memoryview:
        """Return where the next bytes of the stream are to be received."""
        return self._reader.buffer()

    def received(self, count: int) -> list[Reply]:
        """Take so many bytes, which are in the buffer now; return the replies they complete."""
        buffer = self._reader.buffer()
        try:
            return [_reply(packet) for packet in self._reader.received(count)]
        except ProtocolError as error:
            raise self._explain(bytes(buffer[:count]), error) from error

    @property
    def arriving(self) -> Buffer | None:
        """Return the header of the reply of which only the payload is still received."""
        packet = self._reader.arriving
        return packet.header if packet is not None and packet.kind == Kind.REPLY else None

    def _explain(self, data: bytes, error: ProtocolError) -> ProtocolError:
        """Return what to make of bytes that are no reply, or of a reply to the whole connection."""
        if isinstance(error, WrongPortError):
            return WrongPortError(f"{self._address}: {error.message}")
        if data.startswith(HTTP):
            return explain_http(data, self._address)
        return ProtocolError(f"the answer is not of the native protocol: {error.message}")


def _reply(packet: Packet) -> Reply:
    correlation = packet.correlation
    if packet.kind != Kind.ERROR:
        return Reply(correlation, Answer(packet.header, packet.payload))
    failure = decode(packet.header, calls.Failure)
    if failure.code == WrongPortError.code and not correlation:
        raise WrongPortError(failure.message)
    if correlation:
        return Reply(correlation, from_code(failure.code, failure.message))
    return Reply(0, ConnectionLostError(f"connection lost: {failure.message}"))


def decode(header: Buffer, kind: type[ReplyHeader]) -> ReplyHeader:
    """Read a reply's header, or raise a ProtocolError that says what is wrong with it."""
    try:
        return msgspec.msgpack.decode(header, type=kind)
    except HEADER_FAULTS as fault:
        reason = complaint(kind, fault)
        raise ProtocolError(f"a malformed reply, no {kind.__name__}: {reason}") from fault


def hello(api_key: str | None) -> calls.Hello:
    """Return what a client says first."""
    return calls.Hello(calls.PROTOCOL_VERSION, _name(), api_key, list(calls.FEATURES))


@cache
def _name() -> str:
    # Looking it up reads files: once is enough, for many connections.
    return f"goqueue-python/{version('goqueue')}"


def parse_addresses(text: str) -> list[str]:
    """Read ``host:port,host:port``: one broker, or some nodes of one cluster."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and not all(parts):
        raise InvalidRequestError(f"{text!r} has an empty address; write host:port,host:port")
    return list(dict.fromkeys("{}:{}".format(*parse_address(part)) for part in parts))


def parse_address(address: str) -> tuple[str, int]:
    """Read ``host:port``, ``host``, ``goqueue://host:port`` or ``goqueues://host:port``."""
    text = address.removeprefix("goqueue://").removeprefix("goqueues://").rstrip("/")
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
