"""A broker with its listeners: what ``goqueue serve`` runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from goqueue.base.errors import GoQueueError
from goqueue.config.model import BrokerConfig
from goqueue.observability.logging import get_logger
from goqueue.runtime.broker import Broker
from goqueue.runtime.clock import Clock
from goqueue.runtime.topology import Topology
from goqueue.service.routed import routed
from goqueue.service.service import Service
from goqueue.storage.disk import Disk
from goqueue.storage.local import LocalDisk
from goqueue.transport.http.server import HttpServer
from goqueue.transport.native.server import NativeServer

if TYPE_CHECKING:
    from goqueue.server_tls import ServerTls

log = get_logger("goqueue.server")


class Server:
    """Starts a broker on a data directory and listens for it."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        topology: Topology | None = None,
    ) -> None:
        self.config = config
        self.failure: GoQueueError | None = None
        """Why this process must end, if it is not its operator who wants that."""
        self.on_failure: Callable[[], None] = lambda: None
        disk = disk or LocalDisk(Path(config.data_dir))
        self.broker = Broker(config, disk, clock, topology=topology)
        self.service = service = Service(self.broker)
        self.tls = tls = _open_tls(config)
        self._native = NativeServer(
            service,
            http=lambda: self.http_address,
            tls=None if tls is None else tls.native_context,
        )
        self._http = HttpServer(
            routed(self.broker, service),
            native=lambda: self.native_address,
            tls=None if tls is None else tls.http_context,
        )
        service.cluster.listeners = lambda: (self.native_address, self.http_address)

    @property
    def native_address(self) -> str:
        """Where the native protocol listens, with the port that was really taken."""
        return self._native.address

    @property
    def http_address(self) -> str:
        """Where HTTP listens, with the port that was really taken."""
        return self._http.address

    @property
    def cluster_address(self) -> str:
        """Where other nodes connect; empty for a broker by itself."""
        return ""

    async def bind(self) -> None:
        """Take the ports, so that one in use is found before anything of the data is touched."""
        try:
            await self._native.bind(self.config.native_listener)
            await self._http.bind(self.config.http_listener)
        except BaseException:
            await self._close_ports()
            raise

    async def start(self) -> None:
        """Recover the data, then listen at the ports taken: nobody is served before that."""
        if not self.native_address:
            await self.bind()
        try:
            await self.broker.start()
        except BaseException:
            await self._close_ports()
            raise
        await self._listen()

    async def _listen(self) -> None:
        if self.tls is not None:
            self.tls.start()
            self.broker.metrics.collect_from(self.tls.metrics)
        try:
            await self._native.listen()
            await self._http.listen()
        except BaseException:
            await self.stop()
            raise

    def fail(self, error: GoQueueError) -> None:
        """Have the process end, and say why."""
        self.failure = error
        self.on_failure()

    def interrupt(self) -> None:
        """End a start that waits for other machines; a broker by itself waits for none."""

    async def failed(self) -> GoQueueError:
        """Return why this process is of no use any more; a broker by itself serves what it can."""
        never: asyncio.Future[GoQueueError] = asyncio.get_running_loop().create_future()
        return await never

    async def abandon(self) -> None:
        """Stop listening, and leave everything else as it is: the disk may have failed."""
        await self._close_ports()

    async def stop(self) -> None:
        """Stop listening, answer what is under way, make everything durable."""
        self.broker.end_waits()
        if self.tls is not None:
            await self.tls.stop()
        await self._close_ports()
        await self.broker.stop()

    async def _close_ports(self) -> None:
        await asyncio.gather(self._http.stop(), self._native.stop())


def _open_tls(config: BrokerConfig) -> "ServerTls | None":
    """Return the certificates of the listeners; what reads them is loaded only for that."""
    if not config.tls_enabled:
        return None
    from goqueue.server_tls import open_tls  # noqa: PLC0415

    return open_tls(config)


def make_server(config: BrokerConfig) -> Server:
    """Return a broker by itself, or one that is a node of a cluster, as the settings say."""
    if not config.cluster_enabled:
        return Server(config)
    # A broker by itself loads nothing of a cluster.
    from goqueue.node_server import NodeServer  # noqa: PLC0415

    return NodeServer(config)
