"""A broker as the connector sees it: topics, their offsets, news, and frames of ranges.

Connections are kept per process and used again by the next task; a lost one is made anew.
"""

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from goqueue.base.errors import (
    ConnectionLostError,
    DataLossError,
    DeadlineExceededError,
    InvalidRequestError,
    TopicExistsError,
    TopicNotFoundError,
)
from goqueue.client.blocking.chunks import ChunkSource
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.blocking.node_links import CONNECT_SECONDS_MAX
from goqueue.client.blocking.routed_chunks import RoutedChunkSource
from goqueue.client.blocking.routed_link import RoutedBlockingLink
from goqueue.client.dial import Dial
from goqueue.client.protocol.chunk import Chunk
from goqueue.client.protocol.cluster_view import ClusterView
from goqueue.client.protocol.exchange import BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, decode
from goqueue.client.protocol.fetching import ReadOptions
from goqueue.spark.connector.options import Connection
from goqueue.spark.connector.planning import OffsetRange
from goqueue.wire import calls
from goqueue.wire.metadata_calls import CLUSTER
from goqueue.wire.packet import Operation

NativeLink = BlockingLink | RoutedBlockingLink
"""A connection to a broker, or several to the nodes of a cluster."""

IDLE_LINKS_MAX: Final = 4
"""Connections a process keeps for its next tasks."""

Header = TypeVar("Header", bound=calls.Call)
Outcome = TypeVar("Outcome")


class LinkPool:
    """Connections that nobody uses at the moment, by where they lead."""

    def __init__(self) -> None:
        self._idle: dict[Connection, list[NativeLink]] = {}
        # Guards the lists between threads of one worker.
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"<LinkPool with {sum(map(len, self._idle.values()))} idle>"

    @contextmanager
    def link(self, connection: Connection) -> Iterator[NativeLink]:
        """Lend a link; one that was used without trouble is kept for the next."""
        with self._guard:
            idle = self._idle.setdefault(connection, [])
            link = idle.pop() if idle else None
        if link is None:
            link = open_link(connection)
        try:
            yield link
        except BaseException:
            # A reply may still be on its way, and the next one would take it for its own.
            link.close()
            raise
        with self._guard:
            if len(idle) < IDLE_LINKS_MAX:
                idle.append(link)
                return
        link.close()

    def close(self) -> None:
        """End what is idle."""
        with self._guard:
            links = [link for idle in self._idle.values() for link in idle]
            self._idle.clear()
        for link in links:
            link.close()


POOL: Final = LinkPool()
atexit.register(POOL.close)


def open_link(connection: Connection) -> NativeLink:
    """Make a link to a broker, or to the cluster of the first node that answers.

    What cannot be reached at present is tried again when the link is used.
    """
    servers = connection.servers.split(",")
    dial = Dial(
        timeout_s=connection.timeout_ms / 1_000, api_key=connection.api_key, tls=connection.tls
    )
    first = dial if len(servers) == 1 else dial.within(min(dial.timeout_s, CONNECT_SECONDS_MAX))
    for server in servers:
        link = BlockingLink(server, first)
        with suppress(ConnectionLostError, DeadlineExceededError):
            if CLUSTER in link.learn_features():
                link.close()
                break
            if len(servers) > 1:
                link.close()
                raise InvalidRequestError(
                    f"servers: {server} is a broker by itself, in no cluster; name it alone"
                )
        if len(servers) == 1:
            return link
    return RoutedBlockingLink(ClusterView(servers), dial)


class Broker:
    """Asks a broker; a lost connection is tried again until the time is over."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Broker at {self._connection.servers}>"

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        listed = self.ask(Operation.LIST_TOPICS, calls.Nothing(), calls.TopicList)
        return [topic.name for topic in listed.topics]

    def partition_count(self, topic: str, *, partitions_made: int | None = None) -> int:
        """Return how many partitions a topic has; make it with so many if it is not there."""
        try:
            return len(self._describe(topic))
        except TopicNotFoundError as error:
            if partitions_made is None:
                raise TopicNotFoundError(
                    f"{error.message}; make it, or set createTopic to a number of partitions"
                ) from error
        # Another task may be quicker.
        with suppress(TopicExistsError):
            header = calls.CreateTopic(topic, partitions_made)
            self.ask(Operation.CREATE_TOPIC, header, calls.TopicState)
        return len(self._describe(topic))

    def volume(self, topic: str) -> tuple[int, int]:
        """Return how many messages a topic has, and in how many bytes."""
        parts = self._describe(topic)
        rows = sum(part.end_offset - part.start_offset for part in parts)
        return rows, sum(part.size_bytes for part in parts)

    def _describe(self, topic: str) -> list[calls.PartitionState]:
        header = calls.TopicCall(topic)
        return self.ask(Operation.DESCRIBE_TOPIC, header, calls.TopicState).partitions

    def offsets(self, topic: str, *, at_us: int | None = None) -> list[calls.OffsetsPart]:
        """Return the range of each partition, and where a time is in it."""
        return self.ask(Operation.OFFSETS, calls.Offsets(topic, at_us), calls.OffsetsReply).parts

    def wait(self, topic: str, ends: dict[int, int], *, wait_ms: int) -> None:
        """Return when a partition has something behind its end, or when the time is over."""
        parts = [calls.FetchPart(partition, offset) for partition, offset in ends.items()]
        header = calls.Fetch(topic, 1, wait_ms, parts, show_delayed=True)

        def attempt() -> None:
            with POOL.link(self._connection) as link:
                if isinstance(link, RoutedBlockingLink):
                    link.wait(header)
                else:
                    link.request(Operation.FETCH, header)

        insist(attempt, timeout_ms=self._connection.timeout_ms)

    def ask(self, operation: Operation, header: calls.Call, kind: type[Header]) -> Header:
        """Make a call that may safely be made twice."""
        return insist(
            lambda: self.ask_once(operation, header, kind), timeout_ms=self._connection.timeout_ms
        )

    def ask_whole(
        self, operation: Operation, header: calls.Call, kind: type[Header]
    ) -> tuple[Header, bytes]:
        """Make a call that may safely be made twice; return what came beside the header, too."""

        def attempt() -> tuple[Header, bytes]:
            with POOL.link(self._connection) as link:
                answer = link.request(operation, header)
                return decode(answer.header, kind), bytes(answer.payload)

        return insist(attempt, timeout_ms=self._connection.timeout_ms)

    def ask_once(self, operation: Operation, header: calls.Call, kind: type[Header]) -> Header:
        """Make a call, once."""
        with POOL.link(self._connection) as link:
            return decode(link.request(operation, header).header, kind)

    def chunks(self, wanted: OffsetRange, *, is_loss_fatal: bool) -> Iterator[Chunk]:
        """Yield the frames of a range; what is gone is told or passed over."""
        options = ReadOptions(
            start={wanted.partition: wanted.start_offset},
            end={wanted.partition: wanted.end_offset},
            partitions=[wanted.partition],
            on_gap="raise" if is_loss_fatal else "skip",
            delayed="show",
            must_reach_end=is_loss_fatal,
        )
        timeout_s = self._connection.timeout_ms / 1_000
        with POOL.link(self._connection) as link:
            source = (
                RoutedChunkSource(link, timeout_s=timeout_s)
                if isinstance(link, RoutedBlockingLink)
                else ChunkSource(link, timeout_s=timeout_s)
            )
            try:
                yield from source.chunks(wanted.topic, options)
            except DataLossError as error:
                raise DataLossError(
                    f"{error.message.partition(';')[0]}; set failOnDataLoss to false to go on"
                ) from error


def insist(attempt: Callable[[], Outcome], *, timeout_ms: int) -> Outcome:
    """Repeat an attempt that lost its connection, with growing pauses, until the time is over."""
    deadline = time.monotonic() + timeout_ms / 1_000
    backoff_s = BACKOFF_SECONDS
    while True:
        try:
            return attempt()
        except ConnectionLostError:
            if time.monotonic() + backoff_s > deadline:
                raise
        time.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)
