"""The native listener: connections, each bounded in what it may ask and hold."""

import asyncio
from typing import Final

from goqueue.base.errors import OverloadedError
from goqueue.base.limits import REQUEST_BUFFER_BYTES_MAX
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
        self._budget = ByteBudget(REQUEST_BUFFER_BYTES_MAX)
        self._connections: set[Connection] = set()
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
        waits = [connection.drain() for connection in list(self._connections)]
        if waits:
            await asyncio.wait(
                [asyncio.ensure_future(wait) for wait in waits], timeout=STOP_SECONDS_MAX
            )
        for connection in list(self._connections):
            connection.close()
        await self._server.wait_closed()
        self._server = None

    def _accept(self) -> Connection:
        return Connection(self._dispatch, self._budget, opened=self._opened, closed=self._closed)

    def _opened(self, connection: Connection) -> None:
        if len(self._connections) >= self._broker.config.connections_max:
            connection.refuse(OverloadedError("the broker has as many connections as it may"))
            return
        self._connections.add(connection)
        self._broker.metrics.active_connections.set(len(self._connections))

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._broker.metrics.active_connections.set(len(self._connections))
