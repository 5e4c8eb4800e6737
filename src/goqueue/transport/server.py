"""A broker with its listeners: what ``goqueue serve`` runs."""

import asyncio
from pathlib import Path

from goqueue.config.model import BrokerConfig
from goqueue.observability.logging import get_logger
from goqueue.runtime.broker import Broker
from goqueue.storage.local import LocalDisk
from goqueue.transport.http.server import HttpServer
from goqueue.transport.native.server import NativeServer

log = get_logger("goqueue.server")


class Server:
    """Starts a broker on a data directory and listens for it."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.broker = Broker(config, LocalDisk(Path(config.data_dir)))
        self._native = NativeServer(self.broker)
        self._http = HttpServer(self.broker)

    @property
    def native_address(self) -> str:
        """Where the native protocol listens, with the port that was really taken."""
        return self._native.address

    @property
    def http_address(self) -> str:
        """Where HTTP listens, with the port that was really taken."""
        return self._http.address

    async def start(self) -> None:
        """Recover the data, then listen: nobody is served before that."""
        await self.broker.start()
        try:
            await self._native.start(self.config.native_listener)
            await self._http.start(self.config.http_listener)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening, answer what is under way, make everything durable."""
        self.broker.end_waits()
        await asyncio.gather(self._http.stop(), self._native.stop())
        await self.broker.stop()
