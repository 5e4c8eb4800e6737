"""The HTTP listener, in the broker's own event loop."""

import asyncio
from collections.abc import Callable
from email.utils import formatdate

from goqueue.base.units import SECOND_MS
from goqueue.service.service import Service
from goqueue.transport.door import Contexts, Door
from goqueue.transport.http.api import operations
from goqueue.transport.http.app import App
from goqueue.transport.http.connection import HttpConnection
from goqueue.transport.http.hub import Hub
from goqueue.transport.http.origin import Hosts
from goqueue.wire.wrong_port import tls_port_reply


class HttpServer:
    """Listens for HTTP. It handles no signals: stopping is the business of who started it."""

    def __init__(
        self, service: Service, *, native: Callable[[], str] = str, tls: Contexts | None = None
    ) -> None:
        self._service = service
        config = service.config
        self._hub = Hub(
            App(
                operations(service),
                hosts=Hosts((config.node_id, *config.http_hosts.split(","))),
                gate=service.gate,
                turns=service.turns,
                missing=service.missing,
            ),
            connections_max=config.connections_max,
            lost=self._count_down,
            native=native,
        )
        self._door = Door(
            lambda: HttpConnection(self._hub),
            tls=tls,
            plain_reply=lambda first: tls_port_reply(first, self.address),
        )
        service.gate.watch(self._rejudge)
        self._date_timer: asyncio.TimerHandle | None = None
        self._all_gone = asyncio.Event()

    def __repr__(self) -> str:
        return f"<HttpServer on {self.address}: {len(self._hub.connections)} connections>"

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
        self._keep_date()
        await self._door.listen()

    async def stop(self) -> None:
        """Stop listening, answer what is under way, then close every connection."""
        if not self._door.is_open:
            return
        self._door.close()
        if self._date_timer is not None:
            self._date_timer.cancel()
        # Nobody waits any longer for messages that would not be settled here.
        self._service.stop_leasing()
        for connection in list(self._hub.connections):
            connection.shutdown()
        await self._drain(self._service.config.shutdown_timeout_ms / SECOND_MS)
        await self._door.wait_closed()

    async def _drain(self, timeout_seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                while self._hub.connections:
                    self._all_gone.clear()
                    await self._all_gone.wait()
                if self._hub.tasks:
                    await asyncio.wait(self._hub.tasks)
        except TimeoutError:
            for task in list(self._hub.tasks):
                task.cancel()
            for connection in list(self._hub.connections):
                connection.abort()

    def _rejudge(self) -> None:
        """Look at requests that wait again: who may do what has changed."""
        for connection in list(self._hub.connections):
            connection.rejudge()

    def _count_down(self) -> None:
        if not self._hub.connections:
            self._all_gone.set()

    def _keep_date(self) -> None:
        now = formatdate(self._service.now_ms() / SECOND_MS, usegmt=True)
        self._hub.date = b"date: %b\r\n" % now.encode()
        self._date_timer = asyncio.get_running_loop().call_later(1, self._keep_date)
