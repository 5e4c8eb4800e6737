"""A broker in this process on a disk that fails when it is told to."""

from collections.abc import Iterator
from contextlib import contextmanager

import goqueue
from goqueue.client.blocking.channel import EmbeddedChannel
from goqueue.client.blocking.chunks import ChunkSource, EmbeddedRequests
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.config.model import BrokerConfig
from goqueue.embedded import EmbeddedLink
from goqueue.runtime.broker import Broker
from goqueue.service.service import Service
from goqueue.testing.disk import MemoryDisk

TIMEOUT_SECONDS = 60.0


@contextmanager
def opened(disk: MemoryDisk) -> Iterator[tuple[goqueue.Client, EmbeddedLink]]:
    """Start a broker on a disk; give a client of it, and a link for others in its loop."""
    thread = LoopThread("broker on a memory disk")
    broker = Broker(BrokerConfig(sync_threads=0), disk)
    thread.run(broker.start())
    link = EmbeddedLink(Service(broker))
    client = goqueue.Client(
        link,
        thread,
        open_source=lambda: ChunkSource(EmbeddedRequests(link, thread), timeout_s=TIMEOUT_SECONDS),
        open_channel=lambda: EmbeddedChannel(link, thread),
        timeout_s=TIMEOUT_SECONDS,
        on_close=lambda: thread.run(broker.stop()),
    )
    with client:
        yield client, link
