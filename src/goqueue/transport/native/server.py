"""The native listener: connections, each bounded in what it may ask and hold."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from goqueue.base.errors import OverloadedError
from goqueue.base.limits import REPLY_BUFFER_BYTES_MAX, REQUEST_BUFFER_BYTES_MAX
from goqueue.runtime.broker import Broker
from goqueue.transport.native.budget import ByteBudget
from goqueue.transport.native.connection import Connection
from goqueue.transport.native.dispatch import Dispatch

STOP_SECONDS_MAX: Final = 5.0
BACKLOG: Final = 1_024


class NativeServer:
    """Listens for clients of the native protocol."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._dispatch = Dispatch(broker)
        self._requests = ByteBudget(REQUEST_BUFFER_BYTES_MAX)
        self._replies = ByteBudget(REPLY_BUFFER_BYTES_MAX)
        self._connections: set[Connection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._server: asyncio.Server | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """Where it listens, with the port that was really taken."""
        return self._address

    async def start(self, listener: str) -> None:
        """Listen on ``host:port``; port 0 takes a free one."""
        host, _, port = listener.rpartition(":")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._accept, host.strip("[]") or None, int(port), backlog=BACKLOG
        )
        bound = self._server.sockets[0].getsockname()
        self._address = f"{host}:{bound[1]}"

    async def stop(self) -> None:
        """Stop listening, let requests under way finish, then close every connection."""
        if self._server is None:
            return
        self._server.close()
        await _wait(connection.drain() for connection in self._connections)
        for connection in list(self._connections):
            connection.close()
        await _wait([self._empty.wait()])
        for connection in list(self._connections):
            # It does not take its replies; nobody else waits for that.
            connection.abort()
        await self._server.wait_closed()
        self._server = None

    def _accept(self) -> Connection:
        return Connection(
            self._dispatch,
            requests=self._requests,
            replies=self._replies,
            opened=self._opened,
            closed=self._closed,
        )

    def _opened(self, connection: Connection) -> None:
        if len(self._connections) >= self._broker.config.connections_max:
            connection.refuse(OverloadedError("the broker has as many connections as it may"))
            return
        self._connections.add(connection)
        self._empty.clear()
        self._broker.metrics.active_connections.set(len(self._connections))

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()
        self._broker.metrics.active_connections.set(len(self._connections))


async def _wait(deeds: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Wait until all are done, but not for too long."""
    tasks = [asyncio.ensure_future(deed) for deed in deeds]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS_MAX)
        for task in late:
            task.cancel()
