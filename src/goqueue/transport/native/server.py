"""The native listener: connections, each bounded in what it may ask and hold."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from goqueue.base.errors import OverloadedError
from goqueue.base.limits import REPLY_BUFFER_BYTES_MAX, REQUEST_BUFFER_BYTES_MAX
from goqueue.service.service import Service
from goqueue.transport.door import Contexts, Door
from goqueue.transport.native.budget import ByteBudget
from goqueue.transport.native.connection import Connection
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire.wrong_port import tls_port_reply

STOP_SECONDS_MAX: Final = 5.0


class NativeServer:
    """Listens for clients of the native protocol."""

    def __init__(
        self, service: Service, *, http: Callable[[], str] = str, tls: Contexts | None = None
    ) -> None:
        self._http = http
        self._service = service
        self._dispatch = Dispatch(service)
        self._requests = ByteBudget(REQUEST_BUFFER_BYTES_MAX)
        self._replies = ByteBudget(REPLY_BUFFER_BYTES_MAX)
        self._connections: dict[Connection, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self._door = Door(
            self._accept, tls=tls, plain_reply=lambda first: tls_port_reply(first, http())
        )
        service.gate.watch(self._rejudge)

    @property
    def address(self) -> str:
        """Where it listens, with the port that was really taken."""
        return self._door.address

    async def start(self, listener: str) -> None:
        """Listen on ``host:port``; port 0 takes a free one."""
        await self.bind(listener)
        await self.listen()

    async def bind(self, listener: str) -> None:
        """Take the port without accepting connections yet."""
        await self._door.bind(listener)

    async def listen(self) -> None:
        """Serve clients at the port that was taken."""
        await self._door.listen()

    async def stop(self) -> None:
        """Stop listening, let requests under way finish, then close every connection."""
        if not self._door.is_open:
            return
        self._door.close()
        await _wait(connection.drain() for connection in self._connections)
        for connection in list(self._connections):
            connection.close()
        await _wait([self._empty.wait()])
        for connection in list(self._connections):
            # It does not take its replies; nobody else waits for that.
            connection.abort()
        await self._door.wait_closed()

    def _accept(self) -> Connection:
        return Connection(
            self._dispatch,
            self._service,
            requests=self._requests,
            replies=self._replies,
            opened=self._opened,
            closed=self._closed,
            http=self._http,
        )

    def _rejudge(self) -> None:
        """Look at requests that wait again: who may do what has changed."""
        for connection in list(self._connections):
            connection.rejudge()

    def _opened(self, connection: Connection) -> None:
        if len(self._connections) >= self._service.config.connections_max:
            connection.refuse(OverloadedError("the broker has as many connections as it may"))
            return
        self._connections[connection] = None
        self._empty.clear()
        self._service.count_connections(len(self._connections))

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._empty.set()
        self._service.count_connections(len(self._connections))


async def _wait(deeds: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Wait until all are done, but not for too long."""
    tasks = [asyncio.ensure_future(deed) for deed in deeds]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS_MAX)
        for task in late:
            task.cancel()
