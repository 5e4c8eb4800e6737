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
from goqueue.client.dial import Dial, dial_of
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.exchange import parse_addresses
from goqueue.client.sync import Client
from goqueue.client.tls import TlsOptions


def connect(
    address: str = "127.0.0.1:7070",
    *,
    timeout: float = 30.0,
    api_key: str | None = None,
    tls: bool | TlsOptions | None = None,
    insecure: bool = False,
) -> Client:
    """Connect to a broker, or to a cluster by some of its nodes: ``"a:7070,b:7070,c:7070"``.

    Raises at once if none of them answers. ``timeout`` bounds each later call, in seconds. ``tls``
    asks for TLS, as ``goqueues://`` in the address does; a key is shown in the clear to another
    machine only if ``insecure`` says so.
    """
    addresses = parse_addresses(address)
    dial = dial_of(address, timeout_s=timeout, api_key=api_key, tls=tls, insecure=insecure)
    thread = LoopThread("goqueue-client")
    try:
        link = thread.run(open_link(addresses, dial))
    except BaseException:
        thread.stop()
        raise
    if link.cluster is None:
        return _client_of_broker(link, thread, addresses[0], dial)
    return _client_of_cluster(link, thread, link.cluster, dial)


def _client_of_broker(link: Link, thread: LoopThread, address: str, dial: Dial) -> Client:
    open_blocking = partial(BlockingLink, address, dial)
    return Client(
        link,
        thread,
        open_source=lambda: ChunkSource(open_blocking(), timeout_s=dial.timeout_s),
        open_channel=lambda: SocketChannel(open_blocking()),
        open_link=open_blocking,
        timeout_s=dial.timeout_s,
    )


def _client_of_cluster(link: Link, thread: LoopThread, view: ClusterView, dial: Dial) -> Client:
    """Return a client whose threads share the view that its event loop keeps up to date."""

    def refresh() -> None:
        # Who closes stops the loop.
        with contextlib.suppress(RuntimeError):
            thread.loop.call_soon_threadsafe(link.refresh_soon)

    open_blocking = partial(RoutedBlockingLink, view, dial, refresh=refresh)
    open_nodes = partial(NodeLinks, view, dial, refresh=refresh)
    return Client(
        link,
        thread,
        open_source=lambda: RoutedChunkSource(open_blocking(), timeout_s=dial.timeout_s),
        open_channel=lambda: RoutedChannel(open_nodes()),
        open_link=open_blocking,
        timeout_s=dial.timeout_s,
    )
