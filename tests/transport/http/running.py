"""A broker with its HTTP listener in a thread, for tests that come from outside."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import uvloop

from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.runtime.clock import Clock
from goqueue.service.gate import Gate
from goqueue.service.service import Service
from goqueue.storage.local import LocalDisk
from goqueue.transport.http.server import HttpServer

T = TypeVar("T")

TIMEOUT_SECONDS = 30

# Without it every client reads all certificates of the system, which takes longer than most tests.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Running:
    """Serves a data directory until it is closed."""

    def __init__(
        self,
        data_dir: Path,
        *,
        clock: Clock | None = None,
        gate: Gate | None = None,
        **config: Any,
    ) -> None:
        self.data_dir = data_dir
        self._config = BrokerConfig(data_dir=str(data_dir), **config)
        self._clock = clock
        self._gate = gate
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="http server")
        self._thread.start()
        assert self._ready.wait(TIMEOUT_SECONDS)
        if self._failure is not None:
            raise self._failure
        self.client = httpx.Client(
            base_url=f"http://{self.address}", timeout=TIMEOUT_SECONDS, verify=_NO_TLS
        )

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
        self.broker = Broker(self._config, LocalDisk(self.data_dir), self._clock)
        await self.broker.start()
        self.http = HttpServer(Service(self.broker, self._gate))
        await self.http.start("127.0.0.1:0")
        self.address = self.http.address
        self._ready.set()
        await self._stop.wait()
        await self.http.stop()
        await self.broker.stop()

    def stop(self) -> None:
        """Begin to stop the server, as Ctrl-C would."""
        self._loop.call_soon_threadsafe(self._stop.set)

    def close(self) -> None:
        """Stop the server and say what went wrong in it."""
        self.client.close()
        if self._thread.is_alive():
            self.stop()
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive(), "the server does not stop"
        if self._failure is not None:
            raise self._failure

    def inside(self, deed: Callable[[], T]) -> T:
        """Do something in the server's own thread."""

        async def perform() -> T:
            return deed()

        return asyncio.run_coroutine_threadsafe(perform(), self._loop).result(TIMEOUT_SECONDS)

    def await_inside(self, deed: Coroutine[Any, Any, T]) -> T:
        """Wait for something in the server's own thread."""
        return asyncio.run_coroutine_threadsafe(deed, self._loop).result(TIMEOUT_SECONDS)

    # Requests.

    def get(self, path: str, **query: str | int) -> httpx.Response:
        return self.client.get(path, params=query or None)

    def post(self, path: str, body: object = None, **options: Any) -> httpx.Response:
        return self.client.post(path, json=body, **options)

    def create(self, name: str = "orders", **fields: object) -> None:
        reply = self.post("/topics", {"name": name, **fields})
        assert reply.status_code == 201, reply.text

    def publish(self, *messages: object, topic: str = "orders") -> list[dict[str, Any]]:
        reply = self.post(f"/topics/{topic}/messages", {"messages": list(messages)})
        assert reply.status_code == 200, reply.text
        results: list[dict[str, Any]] = reply.json()["results"]
        return results

    def read(
        self, partition: int = 0, *, topic: str = "orders", **query: str | int
    ) -> dict[str, Any]:
        reply = self.get(f"/topics/{topic}/partitions/{partition}/messages", **query)
        assert reply.status_code == 200, reply.text
        page: dict[str, Any] = reply.json()
        return page

    def connect(self) -> socket.socket:
        """Open a bare connection."""
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), TIMEOUT_SECONDS)

    def exchange(self, request: bytes) -> bytes:
        """Send bytes on a connection of their own; return all that comes until it is closed."""
        with self.connect() as connection:
            connection.sendall(request)
            received = b""
            while chunk := connection.recv(65_536):
                received += chunk
        return received

    def metric(self, line: str) -> float:
        """Return the value of one series of the metrics; 0 where it is absent."""
        for text in self.get("/metrics").text.splitlines():
            if text.startswith(line + " "):
                return float(text.rpartition(" ")[2])
        return 0.0


def error_of(reply: httpx.Response) -> tuple[int, str]:
    """Return status and text of an error, having checked that it has the one shape."""
    body = reply.json()
    assert set(body) == {"error", "status", "code"}, body
    assert body["status"] == reply.status_code
    assert reply.headers["content-type"] == "application/json"
    return reply.status_code, body["error"]
