"""The asynchronous client."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Unpack

import pyarrow as pa

from goqueue.client.admin.shells import AsyncAdmin
from goqueue.client.aio.link import Link
from goqueue.client.aio.reading import plain_chunks, routed_chunks
from goqueue.client.consumer.aio import AsyncConsumer
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.client.producer.options import ProducerOptions
from goqueue.client.producers import AsyncProducer
from goqueue.client.protocol.arrow import Columns
from goqueue.client.protocol.chunk import Chunk, messages_in
from goqueue.client.protocol.fetching import Fetching, ReadFields, ReadOptions
from goqueue.client.protocol.leaving import AsyncCloses, Closing
from goqueue.client.protocol.message import Message
from goqueue.client.protocol.routed_fetching import RoutedFetching


class AsyncClient(AsyncAdmin, AsyncCloses):
    """Talks to one broker from an event loop. Close it, or use it as a context manager."""

    def __init__(self, link: Link, *, timeout_s: float = 30.0) -> None:
        super().__init__(link, timeout_s)
        self._producers: dict[AsyncProducer, None] = {}
        self._consumers: set[AsyncConsumer] = set()

    # Messages.

    def producer(self, topic: str, *, linger_ms: float = 5, **options: object) -> AsyncProducer:
        """Return a producer for a topic; see ProducerOptions for what it takes."""
        chosen = ProducerOptions(linger_ms=linger_ms, **options)  # type: ignore[arg-type]
        producer = AsyncProducer(self._link, topic, chosen, self._timeout_s, on_close=self._forget)
        self._producers[producer] = None
        return producer

    def _forget(self, producer: AsyncProducer) -> None:
        self._producers.pop(producer, None)

    def consumer(self, group: str, topics: Sequence[str], **options: object) -> AsyncConsumer:
        """Return a consumer, which joins when it is first used; see ConsumerOptions."""
        chosen = ConsumerOptions(group=group, topics=topics, **options)  # type: ignore[arg-type]
        consumer = AsyncConsumer(
            self._link, chosen, timeout_s=self._timeout_s, on_close=self._consumers.discard
        )
        self._consumers.add(consumer)
        return consumer

    async def read(
        self, topic: str, **options: Unpack[ReadFields]
    ) -> AsyncGenerator[Message, None]:
        """Yield messages in order within each partition; see ReadOptions for what it takes."""
        async for chunk in self._chunks(topic, ReadOptions(**options)):
            for message in messages_in(chunk):
                yield message

    async def read_batches(
        self, topic: str, *, columns: Sequence[str] | None = None, **options: Unpack[ReadFields]
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yield Arrow record batches with topic, partition and offset columns."""
        picked = Columns(columns)
        async for chunk in self._chunks(topic, ReadOptions(**options)):
            for batch in picked.batches_in(chunk):
                yield batch

    async def _chunks(self, topic: str, options: ReadOptions) -> AsyncGenerator[Chunk, None]:
        fetching = Fetching(topic, options)
        is_committed = options.is_committed
        parts = fetching.pick(await self._ranges(topic, None, is_committed=is_committed))
        end = None
        if not options.follow:
            end = await self._resolve(topic, options.last, parts, other="latest")
        start = await self._resolve(topic, options.start, parts)
        fetching.begin(parts, start=start, end=end)
        cluster, link, timeout_s = self._link.cluster, self._link, self._timeout_s
        if cluster is None:
            chunks = plain_chunks(link, fetching, timeout_s=timeout_s)
        else:
            routed = RoutedFetching(topic, fetching, cluster, timeout_s=timeout_s)
            chunks = routed_chunks(link, routed, timeout_s=timeout_s)
        async with aclosing(chunks) as opened:
            async for chunk in opened:
                yield chunk

    async def close(self) -> None:
        """End the consumers, flush the producers and end the link; all of it, whatever fails."""
        closing = Closing()
        for consumer in list(self._consumers):
            with closing.goes_on():
                await consumer.close()
        for producer in list(self._producers):
            with closing.goes_on():
                await producer.close(self._timeout_s)
        await self._link.close()
        closing.check()
