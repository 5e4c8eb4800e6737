"""Connecting to a broker or a cluster from ordinary code."""

import contextlib
from functools import partial

from goqueue.client.aio.link import Link
from goqueue.client.aio.routed_link import open_link
from goqueue.client.blocking.channel import RoutedChannel, SocketChannel
from goqueue.client.blocking.chunks import ChunkSource
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.blocking.node_links import NodeLinks
from goqueue.client.blocking.routed_chunks import RoutedChunkSource
from goqueue.client.blocking.routed_link import RoutedBlockingLink
from goqueue.client.protocol.cluster_view import ClusterView
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
    if link.cluster is None:
        return _client_of_broker(link, thread, addresses[0], timeout, api_key)
    return _client_of_cluster(link, thread, link.cluster, timeout, api_key)


def _client_of_broker(
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


def _client_of_cluster(
    link: Link, thread: LoopThread, view: ClusterView, timeout_s: float, api_key: str | None
) -> Client:
    """Return a client whose threads share the view that its event loop keeps up to date."""

    def refresh() -> None:
        # Who closes stops the loop.
        with contextlib.suppress(RuntimeError):
            thread.loop.call_soon_threadsafe(link.refresh_soon)

    open_blocking = partial(
        RoutedBlockingLink, view, timeout_s=timeout_s, api_key=api_key, refresh=refresh
    )
    open_nodes = partial(NodeLinks, view, timeout_s=timeout_s, api_key=api_key, refresh=refresh)
    return Client(
        link,
        thread,
        open_source=lambda: RoutedChunkSource(open_blocking(), timeout_s=timeout_s),
        open_channel=lambda: RoutedChannel(open_nodes()),
        open_link=open_blocking,
        timeout_s=timeout_s,
    )
