"""One HTTP/1.1 connection to a member of etcd: a request at a time, every length bounded."""

import asyncio
import socket
import ssl
from typing import Final, NamedTuple

import httptools

from goqueue.config.address import Address

HEAD_BYTES_MAX: Final = 64 * 1024
"""Headers of a reply; etcd sends some hundred bytes."""
READ_BYTES: Final = 256 * 1024
_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)


class HttpLineError(Exception):
    """The connection broke, or what came is not HTTP within our bounds."""


class HttpTooLargeError(HttpLineError):
    """A reply is larger than the caller takes."""


class HttpReply(NamedTuple):
    """A whole reply."""

    status: int
    body: bytes


class HttpLine:
    """A connection. After an error it is of no more use."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address: Final = address
        self._reader = reader
        self._writer = writer
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._has_head = False
        self._is_complete = True
        self._parts: list[bytes] = []
        self._size = 0

    @classmethod
    async def open(
        cls, address: Address, context: ssl.SSLContext | None, *, seconds: float
    ) -> "HttpLine":
        """Connect; HttpLineError if that fails."""
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, ssl=context, limit=READ_BYTES
                )
        except TimeoutError:
            raise HttpLineError(f"{address} does not answer") from None
        except (OSError, ssl.SSLError) as error:
            raise HttpLineError(f"{address}: {error.strerror or error}") from None
        raw = writer.get_extra_info("socket")
        if raw is not None:
            for option in _KEEPALIVE:
                raw.setsockopt(*option)
        return cls(address, reader, writer)

    @property
    def is_usable(self) -> bool:
        """Return True if another request can be sent."""
        return (
            self._is_complete
            and not self._reader.at_eof()
            and self._reader.exception() is None
            and not self._writer.is_closing()
        )

    def close(self) -> None:
        """End the connection at once; who reads from it gets HttpLineError."""
        self._writer.transport.abort()

    async def post(
        self, path: str, body: bytes, headers: bytes, *, seconds: float, bytes_max: int
    ) -> HttpReply:
        """Send a request and read its reply."""
        try:
            async with asyncio.timeout(seconds):
                status = await self.begin(path, body, headers)
                parts = []
                size = 0
                while part := await self.part():
                    parts.append(part)
                    size += len(part)
                    if size > bytes_max:
                        raise HttpTooLargeError(f"{self.address}: a reply is too large")
        except TimeoutError:
            raise HttpLineError(f"{self.address} does not answer") from None
        return HttpReply(status, b"".join(parts))

    async def begin(self, path: str, body: bytes, headers: bytes) -> int:
        """Send a request and read the status of its reply."""
        assert self._is_complete, "one request at a time"
        self._parser = httptools.HttpResponseParser(self)
        self._has_head = self._is_complete = False
        self._head_bytes = 0
        self._parts = []
        head = b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n" % (
            path.encode(),
            str(self.address).encode(),
        )
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        try:
            self._writer.write(head + headers + length + body)
            await self._writer.drain()
        except OSError as error:
            raise HttpLineError(f"{self.address}: {error}") from None
        while not self._has_head:
            await self._read()
        return int(self._parser.get_status_code())

    async def part(self) -> bytes:
        """Return the next piece of the reply's body; nothing at its end."""
        while not self._parts and not self._is_complete:
            await self._read()
        parts, self._parts = self._parts, []
        return b"".join(parts)

    async def _read(self) -> None:
        try:
            data = await self._reader.read(READ_BYTES)
        except OSError as error:
            raise HttpLineError(f"{self.address}: {error}") from None
        if not data:
            raise HttpLineError(f"{self.address} closed the connection")
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            raise HttpLineError(f"{self.address} does not speak HTTP") from None
        if not self._has_head and self._head_bytes > HEAD_BYTES_MAX:
            raise HttpLineError(f"{self.address}: the head of a reply is too large")

    # What the parser calls

    def on_headers_complete(self) -> None:
        """Note that the status is known."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Note the end; a reply that ends the connection leaves nothing to use."""
        self._is_complete = True
        if not self._parser.should_keep_alive():
            self.close()
