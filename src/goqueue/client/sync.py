"""The synchronous client: the asynchronous one behind a thread, and readers of its own."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Self

import pyarrow as pa

from goqueue.base.errors import ClosedError
from goqueue.client.aclient import DEFAULT_PARTITIONS, AsyncClient
from goqueue.client.arrow import Columns
from goqueue.client.blocking import BlockingLink
from goqueue.client.chunk import Chunk, runs_in
from goqueue.client.chunks import ChunkSource
from goqueue.client.consumer import Consumer
from goqueue.client.consumer_channel import Channel
from goqueue.client.consumer_options import ConsumerOptions
from goqueue.client.consumer_upkeep import Upkeep
from goqueue.client.delays import Delay, Delayed
from goqueue.client.dlq import DlqCalls
from goqueue.client.link import Link
from goqueue.client.loop_thread import LoopThread
from goqueue.client.message import Message
from goqueue.client.positions import Position
from goqueue.client.producer_options import ProducerOptions
from goqueue.client.producer_sync import Producer
from goqueue.client.publisher import Publisher
from goqueue.client.reader import READ_COMMITTED, OnHidden, ReadOptions
from goqueue.client.schemas import Schemas
from goqueue.client.stream import Item, Stream
from goqueue.client.trace_calls import TraceCalls
from goqueue.client.transaction_calls import TxCalls
from goqueue.wire.calls import CompactedPart, TopicState, TopicSummary
from goqueue.wire.group_calls import GroupState, GroupSummary
from goqueue.wire.overview_calls import Overview
from goqueue.wire.queue_calls import Progress


class Client(DlqCalls, TxCalls, TraceCalls):
    """Talks to one broker from ordinary code. Close it, or use it as a context manager."""

    _client: AsyncClient

    def __init__(
        self,
        link: Link,
        thread: LoopThread,
        *,
        open_source: Callable[[], ChunkSource],
        open_channel: Callable[[], Channel],
        open_link: Callable[[], BlockingLink] | None = None,
        timeout_s: float,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._link = link
        self._thread = thread
        self._timeout_s = timeout_s
        self._open_source = open_source
        self._open_channel = open_channel
        self._open_link = open_link
        self._on_close = on_close
        self._client = AsyncClient(link, timeout_s=timeout_s)
        self.schemas = Schemas(self._client.schemas, thread)
        """The schema registry."""
        self._producers: list[Producer] = []
        self._sources: set[ChunkSource] = set()
        self._consumers: set[Consumer] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Client on {self._link!r}>"

    # Topics.

    def create_topic(
        self, name: str, *, partitions: int = DEFAULT_PARTITIONS, **settings: str | float
    ) -> TopicState:
        """Make a topic. Settings are those of ``goqueue topic config``."""
        return self._thread.run(self._client.create_topic(name, partitions=partitions, **settings))

    def configure_topic(self, name: str, **settings: str | float) -> TopicState:
        """Change settings of a topic."""
        return self._thread.run(self._client.configure_topic(name, **settings))

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all its messages."""
        self._thread.run(self._client.delete_topic(name))

    def describe_topic(self, name: str) -> TopicState:
        """Return a topic's settings and the range of each partition."""
        return self._thread.run(self._client.describe_topic(name))

    def list_topics(self) -> list[TopicSummary]:
        """Return every topic."""
        return self._thread.run(self._client.list_topics())

    def compact_topic(
        self, name: str, partitions: Sequence[int] | None = None, *, dry_run: bool = False
    ) -> list[CompactedPart]:
        """Keep only the last message of each key, or with ``dry_run`` tell how many would go."""
        return self._thread.run(self._client.compact_topic(name, partitions, dry_run=dry_run))

    def offsets(self, topic: str, at: Position = "latest") -> dict[int, int]:
        """Return an offset per partition: the earliest, the latest, or the first at a time."""
        return self._thread.run(self._client.offsets(topic, at))

    # Groups.

    def list_groups(self) -> list[GroupSummary]:
        """Return every consumer group."""
        return self._thread.run(self._client.list_groups())

    def describe_group(self, name: str) -> GroupState:
        """Return a group's members, its options and who reads what."""
        return self._thread.run(self._client.describe_group(name))

    def delete_group(self, name: str, *, force: bool = False) -> None:
        """End a group with everything known of it; one that has members only with ``force``."""
        self._thread.run(self._client.delete_group(name, force=force))

    def commit_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, member: str, generation: int
    ) -> None:
        """Settle everything before offsets of (topic, partition), as their owner in a group."""
        self._thread.run(
            self._client.commit_offsets(group, offsets, member=member, generation=generation)
        )

    def group_progress(self, group: str) -> list[Progress]:
        """Return how far a group is in each partition: committed offset, lag, in flight."""
        return self._thread.run(self._client.group_progress(group))

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offset of each (topic, partition) of a group."""
        return self._thread.run(self._client.group_offsets(group))

    def reset_offsets(
        self,
        group: str,
        topic: str,
        to: str | int | datetime = "earliest",
        *,
        partitions: Sequence[int] | None = None,
    ) -> dict[tuple[str, int], int]:
        """Let a group begin anew: at "earliest", "latest", an offset or a time."""
        return self._thread.run(self._client.reset_offsets(group, topic, to, partitions=partitions))

    # Delayed messages.

    def delayed(self, topic: str, *, limit: int = 100, skip: int = 0) -> list[Delayed]:
        """Return messages that wait for their time, in the order of partitions and offsets."""
        return self._thread.run(self._client.delayed(topic, limit=limit, skip=skip))

    def find_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word for it
    ) -> list[Delayed]:
        """Return a delayed message by its place, or those waiting under a ``delay_id``."""
        return self._thread.run(self._client.find_delayed(topic, partition, offset, id=id))

    def cancel_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word for it
    ) -> list[Delayed]:
        """Have waiting messages never delivered; return them when that is certain."""
        return self._thread.run(self._client.cancel_delayed(topic, partition, offset, id=id))

    def reschedule_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word for it
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
    ) -> list[Delayed]:
        """Give waiting messages another time; one that has passed makes them due at once."""
        return self._thread.run(
            self._client.reschedule_delayed(
                topic, partition, offset, id=id, delay=delay, deliver_at=deliver_at
            )
        )

    def overview(self) -> Overview:
        """Return how all topics and groups stand, as ``goqueue top`` shows it."""
        return self._thread.run(self._client.overview())

    def ping(self) -> None:
        """Return when the broker has answered."""
        self._thread.run(self._client.ping())

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
        )
        self._producers.append(producer)
        return producer

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

    def read(  # noqa: PLR0913 - each is a choice of its own
        self,
        topic: str,
        *,
        start: Position = "earliest",
        end: Position | None = None,
        partitions: Sequence[int] | None = None,
        follow: bool = False,
        on_gap: str = "raise",
        delayed: str = "hide",
        on_hidden: OnHidden | None = None,
        isolation: str = READ_COMMITTED,
    ) -> Stream[Message]:
        """Yield messages in order within each partition; with ``follow`` wait for new ones."""
        options = ReadOptions(
            start=start,
            end=end,
            partitions=partitions,
            follow=follow,
            on_gap=on_gap,
            delayed=delayed,
            on_hidden=on_hidden,
            isolation=isolation,
        )
        return Stream(self._runs(topic, options, runs_in))

    def read_batches(  # noqa: PLR0913 - each is a choice of its own
        self,
        topic: str,
        *,
        start: Position = "earliest",
        end: Position | None = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        on_gap: str = "raise",
        delayed: str = "hide",
        on_hidden: OnHidden | None = None,
        isolation: str = READ_COMMITTED,
    ) -> Stream[pa.RecordBatch]:
        """Yield Arrow record batches with topic, partition and offset columns."""
        picked = Columns(columns)
        options = ReadOptions(
            start=start,
            end=end,
            partitions=partitions,
            follow=follow,
            on_gap=on_gap,
            delayed=delayed,
            on_hidden=on_hidden,
            isolation=isolation,
        )
        return Stream(self._runs(topic, options, lambda chunk: (picked.batches_in(chunk),)))

    def _runs(
        self, topic: str, options: ReadOptions, runs: Callable[[Chunk], Iterable[Iterable[Item]]]
    ) -> Generator[Iterable[Item], None, None]:
        with self._reading() as source:
            for chunk in source.chunks(topic, options):
                yield from runs(chunk)

    @contextmanager
    def _reading(self) -> Iterator[ChunkSource]:
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
        """Flush the producers, end the readers, the link and, if it is embedded, the broker."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for consumer in list(self._consumers):
                consumer.close()
            for source in list(self._sources):
                source.close()
            for producer in self._producers:
                producer.close(self._timeout_s)
            self._thread.run(self._client.close())
        finally:
            self._on_close()
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
