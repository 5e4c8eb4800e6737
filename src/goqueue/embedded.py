"""A broker inside this process, and the clients that talk to it without a socket."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from goqueue.base.caller import EMBEDDED
from goqueue.base.errors import GoQueueError
from goqueue.client.aio.link import Done
from goqueue.client.blocking.channel import EmbeddedChannel
from goqueue.client.blocking.chunks import ChunkSource, EmbeddedRequests
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.exchange import Answer
from goqueue.client.sync import Client
from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.service.service import Service
from goqueue.service.verb import RequestContext
from goqueue.storage.local import LocalDisk
from goqueue.transport.native.dispatch import Dispatch
from goqueue.wire import calls
from goqueue.wire.packet import Buffer, Operation

TIMEOUT_SECONDS = 30.0


class EmbeddedLink:
    """Hands requests to a broker in the same event loop."""

    cluster: ClusterView | None = None

    def __init__(self, service: Service) -> None:
        self._service = service
        self._dispatch = Dispatch(service)
        self._session = service.open(EMBEDDED)
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<EmbeddedLink to {self._service!r}>"

    async def request(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer] = ()
    ) -> Answer:
        """Call the broker as if the request had come over a socket."""
        body = memoryview(payload[0] if len(payload) == 1 else b"".join(payload))
        reply = await self._dispatch.serve(
            self._session, operation, msgspec.msgpack.encode(header), RequestContext(body)
        )
        frames = memoryview(
            reply.payload[0] if len(reply.payload) == 1 else b"".join(reply.payload)
        )
        return Answer(msgspec.msgpack.encode(reply.header), frames)

    def at(self, node: str) -> "EmbeddedLink":
        """Return itself: there is one broker."""
        del node
        return self

    def refresh_soon(self) -> None:
        """Ask nothing: everything is here."""

    @property
    def is_ready(self) -> bool:
        """Tell that nothing goes out at once: a request is a task here in any case."""
        return False

    def begin(
        self, operation: Operation, header: calls.Call, payload: Sequence[Buffer], done: Done
    ) -> None:
        """Call the broker in a task."""

        async def ask() -> None:
            try:
                answer: Answer | GoQueueError = await self.request(operation, header, payload)
            except GoQueueError as error:
                answer = error
            done(answer)

        task = asyncio.get_running_loop().create_task(ask())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self) -> None:
        """Give up nothing: there is no connection."""

    def watch(self, lost: Callable[[], None]) -> None:
        """Watch nothing: there is no connection that could be lost."""

    def unwatch(self, lost: Callable[[], None]) -> None:
        """Watch nothing, as before."""

    async def close(self) -> None:
        """End nothing: the broker is stopped by who started it."""


def open_embedded(data_dir: str | Path, config: BrokerConfig | None = None) -> Client:
    """Start a broker on a data directory in this process and return a client of it."""
    chosen = msgspec.structs.replace(config or BrokerConfig(), data_dir=str(data_dir))
    thread = LoopThread("goqueue-broker")
    broker = Broker(chosen, LocalDisk(Path(data_dir)))
    try:
        thread.run(broker.start())
    except BaseException:
        thread.stop()
        raise
    link = EmbeddedLink(Service(broker))
    return Client(
        link,
        thread,
        open_source=lambda: ChunkSource(EmbeddedRequests(link, thread), timeout_s=TIMEOUT_SECONDS),
        open_channel=lambda: EmbeddedChannel(link, thread),
        timeout_s=TIMEOUT_SECONDS,
        on_close=lambda: thread.run(broker.stop()),
    )
