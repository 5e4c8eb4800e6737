"""The synchronous client: the asynchronous one behind a thread, and readers of its own."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Unpack

import pyarrow as pa

from goqueue.base.errors import ClosedError
from goqueue.client.aclient import AsyncClient
from goqueue.client.admin.shells import Admin
from goqueue.client.aio.link import Link
from goqueue.client.blocking.channel import Channel
from goqueue.client.blocking.chunks import Source
from goqueue.client.blocking.link import BlockingLink
from goqueue.client.blocking.loop_thread import LoopThread
from goqueue.client.blocking.routed_link import RoutedBlockingLink
from goqueue.client.blocking.stream import Item, Stream
from goqueue.client.consumer.blocking import Consumer
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.client.consumer.upkeep import Upkeep
from goqueue.client.producer.options import ProducerOptions
from goqueue.client.producer.publisher import Publisher
from goqueue.client.producers import Producer
from goqueue.client.protocol.arrow import Columns
from goqueue.client.protocol.chunk import Chunk, runs_in
from goqueue.client.protocol.fetching import ReadFields, ReadOptions
from goqueue.client.protocol.leaving import Closes, Closing
from goqueue.client.protocol.message import Message


class Client(Admin, Closes):
    """Talks to a broker or a cluster. Close it, or use it as a context manager."""

    def __init__(
        self,
        link: Link,
        thread: LoopThread,
        *,
        open_source: Callable[[], Source],
        open_channel: Callable[[], Channel],
        open_link: Callable[[], BlockingLink | RoutedBlockingLink] | None = None,
        timeout_s: float,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(AsyncClient(link, timeout_s=timeout_s), thread)
        self._link = link
        self._timeout_s = timeout_s
        self._open_source = open_source
        self._open_channel = open_channel
        self._open_link = open_link
        self._on_close = on_close
        self._producers: dict[Producer, None] = {}
        self._sources: set[Source] = set()
        self._consumers: set[Consumer] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Client on {self._link!r}>"

    # Messages.

    def producer(self, topic: str, *, linger_ms: float = 5, **options: object) -> Producer:
        """Return a producer for a topic; see ProducerOptions for what it takes."""
        chosen = ProducerOptions(linger_ms=linger_ms, **options)  # type: ignore[arg-type]
        partitions = len(self.describe_topic(topic).partitions)
        publisher = None
        if self._open_link is not None and chosen.transactional_id is None:
            publisher = Publisher(self._open_link(), topic, partitions=partitions, options=chosen)
        producer = Producer(
            self._link,
            self._thread,
            topic,
            partitions=partitions,
            options=chosen,
            publisher=publisher,
            timeout_s=self._timeout_s,
            on_close=self._forget,
        )
        self._producers[producer] = None
        return producer

    def _forget(self, producer: Producer) -> None:
        self._producers.pop(producer, None)

    def consumer(self, group: str, topics: Sequence[str], **options: object) -> Consumer:
        """Join a group and return a consumer; see ConsumerOptions for what it takes."""
        if self._is_closed:
            raise ClosedError("the client was closed")
        chosen = ConsumerOptions(group=group, topics=topics, **options)  # type: ignore[arg-type]
        consumer = Consumer(
            Upkeep(self._link, chosen, timeout_s=self._timeout_s),
            self._open_channel(),
            self._thread,
            chosen,
            timeout_s=self._timeout_s,
            on_close=self._consumers.discard,
        )
        self._consumers.add(consumer)
        return consumer

    def read(self, topic: str, **options: Unpack[ReadFields]) -> Stream[Message]:
        """Yield messages in order within each partition; see ReadOptions for what it takes."""
        return Stream(self._runs(topic, ReadOptions(**options), runs_in))

    def read_batches(
        self, topic: str, *, columns: Sequence[str] | None = None, **options: Unpack[ReadFields]
    ) -> Stream[pa.RecordBatch]:
        """Yield Arrow record batches with topic, partition and offset columns."""
        picked = Columns(columns)
        runs = self._runs(topic, ReadOptions(**options), lambda chunk: (picked.batches_in(chunk),))
        return Stream(runs)

    def _runs(
        self, topic: str, options: ReadOptions, runs: Callable[[Chunk], Iterable[Iterable[Item]]]
    ) -> Generator[Iterable[Item], None, None]:
        with self._reading() as source:
            for chunk in source.chunks(topic, options):
                yield from runs(chunk)

    @contextmanager
    def _reading(self) -> Iterator[Source]:
        if self._is_closed:
            raise ClosedError("the client was closed")
        source = self._open_source()
        self._sources.add(source)
        try:
            yield source
        finally:
            self._sources.discard(source)
            source.close()

    def close(self) -> None:
        """Flush the producers, end the readers, the link and, if it is embedded, the broker.

        All of it, whatever fails; then the first failure is raised.
        """
        if self._is_closed:
            return
        self._is_closed = True
        closing = Closing()
        try:
            for consumer in list(self._consumers):
                with closing.goes_on():
                    consumer.close()
            for source in list(self._sources):
                source.close()
            for producer in list(self._producers):
                with closing.goes_on():
                    producer.close(self._timeout_s)
            with closing.goes_on():
                self._thread.run(self._client.close())
        finally:
            try:
                self._on_close()
            finally:
                self._thread.stop()
        closing.check()
