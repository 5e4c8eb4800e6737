"""The least that speaks HTTP on a connection that is kept alive: one request at a time."""

import asyncio
from typing import Self, cast

from benchmarks.child import LOOPBACK

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"
OK = b"HTTP/1.1 200"


class HttpRefusedError(Exception):
    """The answer has a status that is not 200, or no length."""


class HttpConnection(asyncio.Protocol):
    """Sends requests that were made beforehand and finds where each answer ends."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._received = b""
        self._size = 0
        """Bytes of the answer under way with its head; 0 until its head is there."""

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a loopback port."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, LOOPBACK, port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what to write to."""
        # uvloop's transports have the methods of asyncio's and not their type.
        self._transport = cast("asyncio.Transport", transport)

    async def ask(self, request: bytes) -> bytes:
        """Send a whole request and return the whole answer."""
        assert self._transport is not None, "connected"
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """Gather until the answer is whole."""
        assert self._answer is not None, "asked"
        self._received += data
        try:
            self._size = self._size or _size(self._received)
        except (HttpRefusedError, ValueError) as error:
            self._answer.set_exception(error)
            return
        if self._size and len(self._received) >= self._size:
            answer, self._received, self._size = self._received, b"", 0
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the broker closed the connection"))

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None, "connected"
        self._transport.close()


def post(path: str, body: bytes) -> bytes:
    """Return a request with JSON."""
    head = f"POST {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _size(received: bytes) -> int:
    end = received.find(HEAD_END)
    if end < 0:
        return 0
    head = received[:end].lower()
    if not received.startswith(OK):
        raise HttpRefusedError(received[:300].decode(errors="replace"))
    place = head.find(LENGTH)
    if place < 0:
        raise HttpRefusedError("the answer has no Content-Length")
    return end + len(HEAD_END) + int(head[place + len(LENGTH) :].split(b"\r\n", 1)[0])
