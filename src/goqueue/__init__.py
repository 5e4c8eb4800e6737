"""GoQueue: a durable message broker that is both a stream and a queue.

client = goqueue.connect("127.0.0.1:7070")       # a broker somewhere
client = goqueue.open("./data")                  # a broker in this process
"""

from importlib.metadata import version
from pathlib import Path

from goqueue.base.errors import GoQueueError
from goqueue.client.blocking import BlockingLink
from goqueue.client.chunks import ChunkSource
from goqueue.client.link import NativeLink
from goqueue.client.loop_thread import LoopThread
from goqueue.client.pile import Place, SendFuture
from goqueue.client.sync import Client, Producer
from goqueue.core.record.message import Message, Priority

__all__ = [
    "Client",
    "GoQueueError",
    "Message",
    "Place",
    "Priority",
    "Producer",
    "SendFuture",
    "connect",
    "open",
]
__version__ = version("goqueue")


def connect(
    address: str = "127.0.0.1:7070", *, timeout: float = 30.0, api_key: str | None = None
) -> Client:
    """Connect to a broker. ``timeout`` bounds each call, in seconds."""
    thread = LoopThread("goqueue-client")
    client = Client(
        NativeLink(address, timeout_s=timeout, api_key=api_key),
        thread,
        open_source=lambda: ChunkSource(
            BlockingLink(address, timeout_s=timeout, api_key=api_key), timeout_s=timeout
        ),
        timeout_s=timeout,
    )
    try:
        client.ping()
    except BaseException:
        client.close()
        raise
    return client


def open(data_dir: str | Path) -> Client:  # noqa: A001 - reads as goqueue.open("./data")
    """Start a broker on a data directory in this process and return a client of it."""
    from goqueue.embedded import open_embedded  # noqa: PLC0415 - a plain client needs no broker

    return open_embedded(data_dir)
