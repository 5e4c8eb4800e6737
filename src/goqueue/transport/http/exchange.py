"""One request and its reply, as they come and go on a connection."""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from goqueue.base.grant import Grant
from goqueue.base.units import KiB
from goqueue.service.gate import Session
from goqueue.transport.http.reply import Response

Headers = Mapping[bytes, bytes]
"""By lower-case names; of several with one name the first."""

SEND_BYTES: Final = 256 * KiB
"""How much of a reply is handed to the socket at a time."""


class DisconnectedError(Exception):
    """The client is gone."""


class Link(Protocol):
    """The connection of a request, as far as the request has to do with it."""

    @property
    def session(self) -> Session:
        """Who sends the requests, and what was granted."""
        ...

    @property
    def takes_replies(self) -> bool:
        """Whether the system has taken every reply so far."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether what is written still goes out: no write has failed."""
        ...

    def go_on(self, exchange: "Exchange") -> None:
        """Let more of the request come."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes, or have them wait for the peer."""
        ...

    async def writable(self) -> None:
        """Return when the peer has read most of what waits for it, or is gone."""
        ...

    def head(self, response: Response, *, is_last: bool) -> bytes:
        """Return the head of a reply."""
        ...

    def finish(self, exchange: "Exchange") -> None:
        """Take notice that a request has its reply."""
        ...


class Exchange:
    """A request: its head is here, its body may still be on its way."""

    __slots__ = (
        "_link",
        "_news",
        "_pieces",
        "grant",
        "headers",
        "is_answered",
        "is_gone",
        "is_held_back",
        "is_kept_alive",
        "is_whole",
        "method",
        "path",
        "query",
        "session",
        "size",
    )

    def __init__(self, link: Link, method: str, path: str, query: bytes, headers: Headers) -> None:
        self._link = link
        self.session = link.session
        """Who sends it, and what was granted."""
        self.grant: Grant | None = None
        """Proof that it may be answered; None until the gate has admitted it."""
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.is_kept_alive = True
        """Whether the connection serves another request behind this one."""
        self.is_held_back = False
        """Whether the body comes only when it is asked for."""
        self.is_whole = False
        """Whether all of it is here."""
        self.is_gone = False
        """Whether the client is gone."""
        self.is_answered = False
        self.size = 0
        """How many bytes of the body are here and were not taken yet."""
        self._pieces: list[bytes] = []
        self._news: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Exchange {self.method} {self.path}>"

    # What the connection tells.

    def put(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._pieces.append(piece)
        self.size += len(piece)
        self._tell()

    def end(self) -> None:
        """Take the end of the request."""
        self.is_whole = True
        self._tell()

    def leave(self) -> None:
        """Take notice that the peer is gone."""
        self.is_gone = True
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # What an operation asks for.

    def take(self) -> bytes:
        """Return what has come of the body since it was asked for last."""
        pieces, self._pieces, self.size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def body(self) -> bytes:
        """What has come of the body and was not taken; it stays here."""
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0] if self._pieces else b""

    async def read(self) -> bytes:
        """Return the next piece of the body, which may be empty where the body ends; or raise."""
        if not self.is_whole:
            self._link.go_on(self)
        while not (self._pieces or self.is_whole or self.is_gone):
            await self._wait()
        if self.is_gone:
            raise DisconnectedError
        return self.take()

    async def gone(self) -> None:
        """Return when the client is gone. For requests without a body."""
        self._link.go_on(self)
        while not self.is_gone:
            await self._wait()

    async def _wait(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    async def send(self, response: Response) -> None:
        """Send the reply; a large one in pieces, so that it lies in our room and not elsewhere."""
        if not await self._may_write():
            return
        body = b"" if self.method == "HEAD" else response.body
        if len(body) <= SEND_BYTES:
            self._link.write(self._head(response) + body)
        else:
            self._link.write(self._head(response))
            for start in range(0, len(body), SEND_BYTES):
                if not await self._may_write():
                    return
                self._link.write(body[start : start + SEND_BYTES])
        self._end_reply()

    def send_at_once(self, response: Response) -> bool:
        """Send a small reply, or return False where the peer must read first."""
        assert len(response.body) <= SEND_BYTES, "a small reply"
        if self.is_gone:
            return True
        if not self._link.takes_replies:
            return False
        body = b"" if self.method == "HEAD" else response.body
        self._link.write(self._head(response) + body)
        self._end_reply()
        return True

    def _end_reply(self) -> None:
        """Take the next request, unless a write has failed: then nobody has the reply."""
        if self._link.is_open:
            self.is_answered = True
            self._link.finish(self)

    def _head(self, response: Response) -> bytes:
        # A body that was never asked for may come all the same, or not: nobody could tell.
        is_last = response.is_last or (self.is_held_back and not self.is_whole)
        self.is_kept_alive = self.is_kept_alive and not is_last
        return self._link.head(response, is_last=not self.is_kept_alive)

    async def _may_write(self) -> bool:
        """Tell, when the peer has read on, whether it is still there."""
        await self._link.writable()
        return not self.is_gone
