"""Connecting to a broker from ordinary code."""

from functools import partial

from goqueue.client.aio.link import NativeLink
from goqueue.client.blocking.channel import SocketChannel
from goqueue.client.blocking.chunks import ChunkSource
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.sync import Client


def connect(
    address: str = "127.0.0.1:7070", *, timeout: float = 30.0, api_key: str | None = None
) -> Client:
    """Connect to a broker, or raise at once. ``timeout`` bounds each later call, in seconds."""
    thread = LoopThread("goqueue-client")
    link = NativeLink(address, timeout_s=timeout, api_key=api_key)
    open_link = partial(BlockingLink, address, timeout_s=timeout, api_key=api_key)
    client = Client(
        link,
        thread,
        open_source=lambda: ChunkSource(open_link(), timeout_s=timeout),
        open_channel=lambda: SocketChannel(open_link()),
        open_link=open_link,
        timeout_s=timeout,
    )
    try:
        thread.run(link.connect())
    except BaseException:
        client.close()
        raise
    return client
