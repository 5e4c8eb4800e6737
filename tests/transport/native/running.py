"""A broker with its native listener in a thread, for tests that come from outside."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import uvloop

from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.runtime.clock import Clock
from goqueue.service.gate import Gate
from goqueue.service.service import Service
from goqueue.storage.disk import Disk
from goqueue.storage.local import LocalDisk
from goqueue.transport.native.server import NativeServer
from tests.transport.native.raw import Raw

T = TypeVar("T")

TIMEOUT_SECONDS = 30


class Running:
    """Serves a data directory, or any other disk, until it is closed."""

    def __init__(
        self,
        place: Path | Disk,
        *,
        clock: Clock | None = None,
        listener: str = "127.0.0.1:0",
        gate: Gate | None = None,
        **config: Any,
    ) -> None:
        self._disk: Disk = LocalDisk(place) if isinstance(place, Path) else place
        self._clock = clock
        self._listener = listener
        self._gate = gate
        self._config = BrokerConfig(data_dir=str(place), **config)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="native server", daemon=True)
        self._thread.start()
        assert self._ready.wait(TIMEOUT_SECONDS)
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to the test by close
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.broker = Broker(self._config, self._disk, self._clock)
        await self.broker.start()
        self.native = NativeServer(Service(self.broker, self._gate))
        try:
            await self.native.start(self._listener)
            self.address = self.native.address
            self._ready.set()
            await self._stop.wait()
            await self.native.stop()
        finally:
            await self.broker.stop()

    def close(self) -> None:
        """Stop the server and say what went wrong in it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive(), "the server does not stop"
        if self._failure is not None:
            raise self._failure

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def inside(self, deed: Callable[[], T]) -> T:
        """Do something in the server's own thread."""

        async def perform() -> T:
            return deed()

        return self.await_inside(perform())

    def await_inside(self, deed: Coroutine[Any, Any, T]) -> T:
        """Wait for something in the server's own thread."""
        return asyncio.run_coroutine_threadsafe(deed, self._loop).result(TIMEOUT_SECONDS)

    def connect(self, *, greet: bool = True, **options: Any) -> Raw:
        """Open a bare connection and, unless told otherwise, say hello."""
        raw = Raw(self.address, **options)
        if greet:
            raw.greet()
        return raw
