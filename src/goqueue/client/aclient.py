"""The asynchronous client."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

import pyarrow as pa

from goqueue.base.errors import DeadlineExceededError, GoQueueError
from goqueue.client.arrow import Columns
from goqueue.client.chunk import Chunk, messages_in
from goqueue.client.consumer_async import AsyncConsumer
from goqueue.client.consumer_options import ConsumerOptions
from goqueue.client.delays import Delay, Delayed, delayed_of, named, rescheduled
from goqueue.client.dlq import AsyncDlqCalls
from goqueue.client.link import Answer, Link, ReplyHeader, call, decode, retry
from goqueue.client.message import Message
from goqueue.client.pile import Place, SendFuture
from goqueue.client.positions import Position, resolve, time_of
from goqueue.client.producer import Gatherer
from goqueue.client.producer_options import ProducerOptions
from goqueue.client.reader import (
    READ_COMMITTED,
    Fetching,
    OnHidden,
    ReadOptions,
)
from goqueue.client.schemas import AsyncSchemas
from goqueue.client.special import PublishFields
from goqueue.client.trace_calls import AsyncTraceCalls
from goqueue.client.transaction import AsyncTransaction, required
from goqueue.client.transaction_calls import AsyncTxCalls
from goqueue.client.transaction_session import TxSession
from goqueue.wire import calls, group_calls
from goqueue.wire.delayed_calls import DelayedList, ListDelayed
from goqueue.wire.overview_calls import Overview
from goqueue.wire.packet import Operation
from goqueue.wire.queue_calls import (
    CommitOffsets,
    GroupCall,
    GroupProgress,
    OffsetOf,
    OffsetsSet,
    Progress,
    ResetOffsets,
)

DEFAULT_PARTITIONS = 3


class AsyncProducer:
    """Publishes to one topic. ``send`` queues at once and returns a future that can be awaited."""

    def __init__(self, link: Link, topic: str, options: ProducerOptions, timeout_s: float) -> None:
        self._link = link
        self._topic = topic
        self._timeout_s = timeout_s
        loop = asyncio.get_running_loop()
        here = threading.get_ident()
        self._session: TxSession | None = None
        if options.transactional_id is None:
            self._gatherer = Gatherer(link, loop, topic, options, loop_thread=here)
        else:
            self._session = TxSession(link, options, loop, loop_thread=here, timeout_s=timeout_s)
            self._gatherer = self._session.gatherer(topic)
        self._starting = loop.create_task(self._start())

    def __repr__(self) -> str:
        return f"<AsyncProducer of {self._topic}>"

    async def _start(self) -> None:
        if self._session is not None:
            await self._session.start(self._topic)
            return
        try:
            state = await call(
                self._link,
                Operation.DESCRIBE_TOPIC,
                calls.TopicCall(self._topic),
                calls.TopicState,
                timeout_s=self._timeout_s,
            )
        except GoQueueError as error:
            self._gatherer.fail(error)
        else:
            self._gatherer.learn(len(state.partitions))

    def send(
        self, value: bytes | None, *, key: bytes | None = None, **fields: Unpack[PublishFields]
    ) -> SendFuture:
        """Queue one message. A full buffer raises BufferFullError; ``drain`` waits for room."""
        return self._gatherer.send(value, key, **fields)

    async def publish(
        self, value: bytes | None, *, key: bytes | None = None, **fields: Unpack[PublishFields]
    ) -> Place:
        """Publish one message without lingering and return where it is."""
        return await self.send(value, key=key, **fields)

    def transaction(self) -> AsyncTransaction:
        """Return a transaction, to be used with ``async with``; needs a ``transactional_id``."""
        return AsyncTransaction(required(self._session), self._topic, self._starting)

    @property
    def last_token(self) -> str:
        """The token of the last commit under this id; known within ``async with`` only."""
        return required(self._session).token

    async def drain(self) -> None:
        """Return when the buffer has room again."""
        await self._starting
        await self._gatherer.room()

    async def flush(self) -> None:
        """Send what is gathered and return when every message is settled."""
        await self._starting
        await self._gatherer.flush()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and take no more; what is not settled in time fails."""
        if self._session is not None:
            await asyncio.wait({self._starting})
            await self._session.close()
        else:
            await self._starting
        await self._gatherer.close(timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        await self._starting
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncClient(AsyncDlqCalls, AsyncTxCalls, AsyncTraceCalls):
    """Talks to one broker from an event loop. Close it, or use it as a context manager."""

    def __init__(self, link: Link, *, timeout_s: float = 30.0) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._producers: list[AsyncProducer] = []
        self.schemas = AsyncSchemas(link, timeout_s)
        """The schema registry."""
        self._consumers: set[AsyncConsumer] = set()

    def __repr__(self) -> str:
        return f"<AsyncClient on {self._link!r}>"

    # Topics.

    async def create_topic(
        self, name: str, *, partitions: int = DEFAULT_PARTITIONS, **settings: str | float
    ) -> calls.TopicState:
        """Make a topic. Settings are those of ``goqueue topic config``."""
        return await self._once(
            Operation.CREATE_TOPIC, calls.CreateTopic(name, partitions, settings), calls.TopicState
        )

    async def configure_topic(self, name: str, **settings: str | float) -> calls.TopicState:
        """Change settings of a topic."""
        return await self._call(
            Operation.CONFIGURE_TOPIC, calls.ConfigureTopic(name, settings), calls.TopicState
        )

    async def delete_topic(self, name: str) -> None:
        """Remove a topic with all its messages."""
        await self._once(Operation.DELETE_TOPIC, calls.TopicCall(name), calls.Nothing)

    async def describe_topic(self, name: str) -> calls.TopicState:
        """Return a topic's settings and the range of each partition."""
        return await self._call(Operation.DESCRIBE_TOPIC, calls.TopicCall(name), calls.TopicState)

    async def list_topics(self) -> list[calls.TopicSummary]:
        """Return every topic."""
        reply = await self._call(Operation.LIST_TOPICS, calls.Nothing(), calls.TopicList)
        return sorted(reply.topics, key=lambda topic: topic.name)

    async def compact_topic(
        self, name: str, partitions: Sequence[int] | None = None, *, dry_run: bool = False
    ) -> list[calls.CompactedPart]:
        """Keep only the last message of each key, or with ``dry_run`` tell how many would go."""
        chosen = None if partitions is None else list(partitions)
        call = calls.CompactTopic(name, chosen, dry_run)
        return (await self._once(Operation.COMPACT_TOPIC, call, calls.Compacted)).parts

    async def offsets(self, topic: str, at: Position = "latest") -> dict[int, int]:
        """Return an offset per partition: the earliest, the latest, or the first at a time."""
        parts = await self._ranges(topic, None)
        return await self._resolve(topic, at, parts)

    # Groups.

    async def list_groups(self) -> list[group_calls.GroupSummary]:
        """Return every consumer group."""
        reply = await self._call(Operation.LIST_GROUPS, calls.Nothing(), group_calls.GroupList)
        return reply.groups

    async def describe_group(self, name: str) -> group_calls.GroupState:
        """Return a group's members, its options and who reads what."""
        header = GroupCall(name)
        return await self._call(Operation.DESCRIBE_GROUP, header, group_calls.GroupState)

    async def delete_group(self, name: str, *, force: bool = False) -> None:
        """End a group with everything known of it; one that has members only with ``force``."""
        header = group_calls.DeleteGroup(name, force)
        await self._once(Operation.DELETE_GROUP, header, calls.Nothing)

    async def commit_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, member: str, generation: int
    ) -> None:
        """Settle everything before offsets of (topic, partition), as their owner in a group."""
        places = [OffsetOf(topic, part, offset) for (topic, part), offset in offsets.items()]
        header = CommitOffsets(group, member, generation, places)
        await self._call(Operation.COMMIT_OFFSETS, header, calls.Nothing)

    async def group_progress(self, group: str) -> list[Progress]:
        """Return how far a group is in each partition: committed offset, lag, in flight."""
        reply = await self._call(Operation.GROUP_PROGRESS, GroupCall(group), GroupProgress)
        return sorted(reply.parts, key=lambda part: (part.topic, part.partition))

    async def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offset of each (topic, partition) of a group."""
        parts = await self.group_progress(group)
        return {(part.topic, part.partition): part.committed_offset for part in parts}

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        to: str | int | datetime = "earliest",
        *,
        partitions: Sequence[int] | None = None,
    ) -> dict[tuple[str, int], int]:
        """Let a group begin anew: at "earliest", "latest", an offset or a time."""
        header = ResetOffsets(
            group,
            topic,
            to if isinstance(to, str) else "",
            time_of(to),
            to if isinstance(to, int) else None,
            None if partitions is None else list(partitions),
        )
        reply = await self._call(Operation.RESET_OFFSETS, header, OffsetsSet)
        return {(one.topic, one.partition): one.offset for one in reply.offsets}

    # Delayed messages.

    async def delayed(self, topic: str, *, limit: int = 100, skip: int = 0) -> list[Delayed]:
        """Return messages that wait for their time, in the order of partitions and offsets."""
        header = ListDelayed(topic, skip, limit)
        return _delayed(await self._call(Operation.LIST_DELAYED, header, DelayedList))

    async def find_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word for it
    ) -> list[Delayed]:
        """Return a delayed message by its place, or those waiting under a ``delay_id``."""
        header = named(topic, partition, offset, id)
        return _delayed(await self._call(Operation.FIND_DELAYED, header, DelayedList))

    async def cancel_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the word for it
    ) -> list[Delayed]:
        """Have waiting messages never delivered; return them when that is certain."""
        header = named(topic, partition, offset, id)
        return _delayed(await self._once(Operation.CANCEL_DELAYED, header, DelayedList))

    async def reschedule_delayed(
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
        header = rescheduled(named(topic, partition, offset, id), delay, deliver_at)
        return _delayed(await self._once(Operation.RESCHEDULE_DELAYED, header, DelayedList))

    async def overview(self) -> Overview:
        """Return how all topics and groups stand, as ``goqueue top`` shows it."""
        return await self._call(Operation.OVERVIEW, calls.Nothing(), Overview)

    async def ping(self) -> None:
        """Return when the broker has answered."""
        await self._call(Operation.PING, calls.Nothing(), calls.Nothing)

    # Messages.

    def producer(self, topic: str, *, linger_ms: float = 5, **options: object) -> AsyncProducer:
        """Return a producer for a topic; see ProducerOptions for what it takes."""
        chosen = ProducerOptions(linger_ms=linger_ms, **options)  # type: ignore[arg-type]
        producer = AsyncProducer(self._link, topic, chosen, self._timeout_s)
        self._producers.append(producer)
        return producer

    def consumer(self, group: str, topics: Sequence[str], **options: object) -> AsyncConsumer:
        """Return a consumer, which joins when it is first used; see ConsumerOptions."""
        chosen = ConsumerOptions(group=group, topics=topics, **options)  # type: ignore[arg-type]
        consumer = AsyncConsumer(
            self._link, chosen, timeout_s=self._timeout_s, on_close=self._consumers.discard
        )
        self._consumers.add(consumer)
        return consumer

    async def read(  # noqa: PLR0913 - each is a choice of its own
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
    ) -> AsyncGenerator[Message, None]:
        """Yield messages in order within each partition."""
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
        async for chunk in self._chunks(topic, options):
            for message in messages_in(chunk):
                yield message

    async def read_batches(  # noqa: PLR0913 - each is a choice of its own
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
    ) -> AsyncGenerator[pa.RecordBatch, None]:
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
        async for chunk in self._chunks(topic, options):
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
                answer = await (pending or self._fetch(fetching.request()))
                chunks = fetching.take(answer)
                # The next reply is under way while this one is looked at.
                pending = None
                if not fetching.is_over:
                    pending = asyncio.ensure_future(self._fetch(fetching.request()))
                for chunk in chunks:
                    yield chunk
        finally:
            if pending is not None:
                pending.cancel()

    async def _fetch(self, header: calls.Fetch) -> Answer:
        answer: Answer = await retry(
            lambda: self._link.request(Operation.FETCH, header), timeout_s=self._timeout_s
        )
        return answer

    async def _ranges(
        self, topic: str, timestamp_us: int | None, *, is_committed: bool = True
    ) -> list[calls.OffsetsPart]:
        header = calls.Offsets(topic, timestamp_us, is_committed)
        return (await self._call(Operation.OFFSETS, header, calls.OffsetsReply)).parts

    async def _resolve(
        self,
        topic: str,
        position: Position,
        parts: list[calls.OffsetsPart],
        *,
        other: str = "earliest",
    ) -> dict[int, int]:
        moment = time_of(position)
        at_time = [] if moment is None else await self._ranges(topic, moment)
        return resolve(position, parts, at_time, other=other)

    async def _once(
        self, operation: Operation, header: calls.Call, kind: type[ReplyHeader]
    ) -> ReplyHeader:
        """Make a call that must not be repeated: whether a lost one was carried out is unknown."""
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._link.request(operation, header)
        except TimeoutError as error:
            raise DeadlineExceededError(f"no answer in {self._timeout_s:g} s") from error
        return decode(answer.header, kind)

    async def _call(
        self, operation: Operation, header: calls.Call, kind: type[ReplyHeader]
    ) -> ReplyHeader:
        return await call(self._link, operation, header, kind, timeout_s=self._timeout_s)

    async def close(self) -> None:
        """End the consumers, flush the producers and end the link."""
        for consumer in list(self._consumers):
            await consumer.close()
        for producer in self._producers:
            await producer.close(self._timeout_s)
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _delayed(reply: DelayedList) -> list[Delayed]:
    return list(map(delayed_of, reply.messages))
