"""The asynchronous client."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Unpack

import pyarrow as pa

from goqueue.client.admin.shells import AsyncAdmin
from goqueue.client.aio.link import Link
from goqueue.client.consumer.aio import AsyncConsumer
from goqueue.client.consumer.options import ConsumerOptions
from goqueue.client.producer.options import ProducerOptions
from goqueue.client.producers import AsyncProducer
from goqueue.client.protocol.arrow import Columns
from goqueue.client.protocol.chunk import Chunk, messages_in
from goqueue.client.protocol.exchange import Answer
from goqueue.client.protocol.fetching import Fetching, ReadFields, ReadOptions
from goqueue.client.protocol.leaving import AsyncCloses, Closing
from goqueue.client.protocol.message import Message
from goqueue.wire.packet import Operation


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

    async def _chunks(self, topic: str, options: ReadOptions) -> AsyncIterator[Chunk]:
        fetching = Fetching(topic, options)
        is_committed = options.is_committed
        parts = fetching.pick(await self._ranges(topic, None, is_committed=is_committed))
        end = None
        if not options.follow:
            end = await self._resolve(topic, options.last, parts, other="latest")
        start = await self._resolve(topic, options.start, parts)
        fetching.begin(parts, start=start, end=end)
        pending: asyncio.Task[Answer] | None = None
        try:
            while not fetching.is_over:
                answer = await (pending or self._request(Operation.FETCH, fetching.request()))
                chunks = fetching.take(answer)
                # The next reply is under way while this one is looked at.
                pending = None
                if not fetching.is_over:
                    pending = asyncio.ensure_future(
                        self._request(Operation.FETCH, fetching.request())
                    )
                for chunk in chunks:
                    yield chunk
        finally:
            if pending is not None:
                pending.cancel()

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
