"""Connecting to a broker or a cluster from ordinary code."""

from functools import partial

from goqueue.client.aio.link import Link
from goqueue.client.aio.routed_link import open_link
from goqueue.client.blocking.channel import SocketChannel
from goqueue.client.blocking.chunks import ChunkSource
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.protocol.exchange import parse_addresses
from goqueue.client.sync import Client


def connect(
    address: str = "127.0.0.1:7070", *, timeout: float = 30.0, api_key: str | None = None
) -> Client:
    """Connect to a broker, or to a cluster by some of its nodes: ``"a:7070,b:7070,c:7070"``.

    Raises at once if none of them answers. ``timeout`` bounds each later call, in seconds.
    """
    addresses = parse_addresses(address)
    thread = LoopThread("goqueue-client")
    try:
        link = thread.run(open_link(addresses, timeout_s=timeout, api_key=api_key))
    except BaseException:
        thread.stop()
        raise
    return _client(link, thread, addresses[0], timeout, api_key)


def _client(
    link: Link, thread: LoopThread, address: str, timeout_s: float, api_key: str | None
) -> Client:
    open_blocking = partial(BlockingLink, address, timeout_s=timeout_s, api_key=api_key)
    return Client(
        link,
        thread,
        open_source=lambda: ChunkSource(open_blocking(), timeout_s=timeout_s),
        open_channel=lambda: SocketChannel(open_blocking()),
        open_link=open_blocking,
        timeout_s=timeout_s,
    )
