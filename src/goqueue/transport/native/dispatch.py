"""Each native operation as one call on the broker. The embedded client calls this directly."""

import os
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from itertools import islice
from typing import Any, Final

import msgspec

from goqueue.base.errors import GoQueueError, InvalidRequestError, UnsupportedError
from goqueue.base.ids import TopicName
from goqueue.base.names import is_internal
from goqueue.core.topics.settings import OS
from goqueue.core.tx.producer import Identity
from goqueue.runtime import fetch
from goqueue.runtime.broker import Broker
from goqueue.runtime.kept_frames import KeptFrames
from goqueue.runtime.partition import Published
from goqueue.runtime.sight import Lens
from goqueue.runtime.topic import Topic
from goqueue.runtime.transactions import Last
from goqueue.storage.disk import File
from goqueue.transport.native.delayed_dispatch import DelayedOperations
from goqueue.transport.native.dlq_dispatch import DlqOperations
from goqueue.transport.native.group_dispatch import GroupOperations
from goqueue.transport.native.overview import OverviewOperations
from goqueue.transport.native.queue_dispatch import QueueOperations
from goqueue.transport.native.reply import Begun, Beside, Reply, failure_of
from goqueue.transport.native.schema_dispatch import SchemaOperations
from goqueue.transport.native.trace_dispatch import TraceOperations
from goqueue.transport.native.tx_dispatch import TxOperations
from goqueue.wire import calls
from goqueue.wire.complaint import HEADER_FAULTS, complaint
from goqueue.wire.packet import Buffer, Operation

WAITING: Final = ("leader", "all")
ACKS: Final = ("none", *WAITING)
MISFITS_TOLD_MAX: Final = 100
"""So many refused messages of a part are told why; a reply has its bounds."""

_decode_produce: Final = msgspec.msgpack.Decoder(calls.Produce).decode


class Dispatch:
    """Translates requests into broker calls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._server = f"goqueue/{version('goqueue')}"
        self._operations: dict[int, tuple[type[calls.Call], Callable[[Buffer], Any], Any]] = {}
        self._add(Operation.HELLO, calls.Hello, self._hello)
        self._add(Operation.PING, calls.Nothing, self._ping)
        self._add(Operation.CREATE_TOPIC, calls.CreateTopic, self._create_topic)
        self._add(Operation.DELETE_TOPIC, calls.TopicCall, self._delete_topic)
        self._add(Operation.CONFIGURE_TOPIC, calls.ConfigureTopic, self._configure_topic)
        self._add(Operation.DESCRIBE_TOPIC, calls.TopicCall, self._describe_topic)
        self._add(Operation.LIST_TOPICS, calls.Nothing, self._list_topics)
        self._add(Operation.COMPACT_TOPIC, calls.CompactTopic, self._compact_topic)
        self._add(Operation.INIT_PRODUCER, calls.InitProducer, self._init_producer)
        self._add(Operation.PRODUCE, calls.Produce, self._produce)
        self._add(Operation.FETCH, calls.Fetch, self._fetch)
        self._add(Operation.OFFSETS, calls.Offsets, self._offsets)
        GroupOperations(broker).register(self._add)
        self._queue = QueueOperations(broker)
        self._queue.register(self._add)
        TxOperations(broker).register(self._add)
        DelayedOperations(broker).register(self._add)
        SchemaOperations(broker).register(self._add)
        OverviewOperations(broker).register(self._add)
        DlqOperations(broker).register(self._add)
        TraceOperations(broker).register(self._add)

    @property
    def operations(self) -> frozenset[int]:
        """The numbers of what is served here."""
        return frozenset(self._operations)

    def _add(
        self,
        operation: Operation,
        kind: type[calls.Call],
        serve: Callable[[Any, Beside], Awaitable[Reply]],
    ) -> None:
        self._operations[operation] = (kind, msgspec.msgpack.Decoder(kind).decode, serve)

    async def serve(
        self,
        operation: int,
        header: Buffer,
        payload: memoryview,
        room: fetch.Room = fetch.BOUNDLESS,
        kept: KeptFrames | None = None,
    ) -> Reply:
        """Answer one request, or raise a GoQueueError. What is read from the log fits ``room``."""
        call, serve = self._decode(operation, header)
        reply: Reply = await serve(call, Beside(payload, room, kept))
        return reply

    def _decode(self, operation: int, header: Buffer) -> tuple[Any, Any]:
        """Return a request and what serves it."""
        known = self._operations.get(operation)
        if known is None:
            raise UnsupportedError(f"operation {operation} is not known to {self._server}")
        kind, decode, serve = known
        try:
            return decode(header), serve
        except HEADER_FAULTS as error:
            name = Operation(operation).name.lower()
            raise InvalidRequestError(f"{name}: {complaint(kind, error)}") from error

    def produce_at_once(self, header: Buffer, payload: memoryview) -> Reply | None:
        """Answer a request to publish that need not wait for others, or None: serve it then."""
        try:
            call = _decode_produce(header)
        except HEADER_FAULTS:
            return None
        if call.transaction is not None or call.acks not in WAITING or len(call.parts) != 1:
            return None
        topic = self._broker.topics.get(TopicName(call.topic))
        (part,) = call.parts
        if topic is None or part.size != len(payload):
            return None
        outcome = topic.publish_at_once(part.partition, payload)
        if outcome is None:
            return None
        produced = [_produced(part.partition, outcome)]
        return Reply(calls.Produced(topic.settings.ack_durability, produced))

    def begin_settle(self, header: Buffer) -> Begun:
        """Settle messages, or raise a GoQueueError; the reply waits for the disk."""
        call, _ = self._decode(Operation.SETTLE, header)
        return self._queue.begin_settle(call)

    async def _hello(self, call: calls.Hello, _: Beside) -> Reply:
        if call.protocol != calls.PROTOCOL_VERSION:
            raise UnsupportedError(
                f"protocol {call.protocol} is not spoken here; {calls.PROTOCOL_VERSION} is"
            )
        node_id = self._broker.config.node_id
        return Reply(calls.HelloReply(calls.PROTOCOL_VERSION, self._server, node_id))

    async def _ping(self, _: calls.Nothing, __: Beside) -> Reply:
        return Reply(calls.Nothing())

    async def _create_topic(self, call: calls.CreateTopic, _: Beside) -> Reply:
        topic = await self._broker.make_topic(
            call.name, partitions=call.partitions, settings=call.settings
        )
        return Reply(_state(topic))

    async def _delete_topic(self, call: calls.TopicCall, _: Beside) -> Reply:
        self._broker.delete_topic(call.name)
        return Reply(calls.Nothing())

    async def _configure_topic(self, call: calls.ConfigureTopic, _: Beside) -> Reply:
        return Reply(_state(self._broker.configure_topic(call.name, call.settings)))

    async def _describe_topic(self, call: calls.TopicCall, _: Beside) -> Reply:
        return Reply(_state(self._broker.topic(call.name)))

    async def _list_topics(self, _: calls.Nothing, __: Beside) -> Reply:
        topics = self._broker.topics.items()
        listed = [_summary(topic) for name, topic in topics if not is_internal(name)]
        return Reply(calls.TopicList(listed))

    async def _compact_topic(self, call: calls.CompactTopic, _: Beside) -> Reply:
        topic = self._broker.topic(call.name)
        results = await self._broker.compactor.compact(topic, call.partitions, dry_run=call.dry_run)
        return Reply(
            calls.Compacted([calls.CompactedPart(**msgspec.structs.asdict(one)) for one in results])
        )

    async def _init_producer(self, call: calls.InitProducer, _: Beside) -> Reply:
        if call.producer_id:
            self._broker.check_free(call.producer_id)
            stamp = self._broker.renew_producer(producer_id=call.producer_id, epoch=call.epoch)
        else:
            stamp = self._broker.init_producer()
        return Reply(calls.ProducerIdentity(stamp.producer_id, stamp.epoch))

    async def _produce(self, call: calls.Produce, beside: Beside) -> Reply:
        payload = beside.payload
        if call.acks not in ACKS:
            raise InvalidRequestError(f"acks: must be one of {', '.join(ACKS)}")
        if sum(part.size for part in call.parts) != len(payload):
            raise InvalidRequestError("parts: their sizes do not add up to the payload")
        topic = self._broker.topic(call.topic)
        is_waiting = call.acks != "none"
        parts: list[tuple[int, memoryview]] = []
        position = 0
        for part in call.parts:
            parts.append((part.partition, payload[position : position + part.size]))
            position += part.size
        ended: bool | GoQueueError = False
        if call.transaction is not None:
            outcomes, ended = await self._publish_in(call.transaction, call.topic, parts)
        else:
            outcomes = await topic.publish_all(parts, wait=is_waiting)
        # Who does not wait for the disk is not told that it has the message.
        durability = topic.settings.ack_durability if is_waiting else OS
        return Reply(
            calls.Produced(
                durability,
                [
                    _produced(part.partition, one)
                    for part, one in zip(call.parts, outcomes, strict=True)
                ],
                ended is True,
                failure_of(ended) if isinstance(ended, GoQueueError) else None,
            )
        )

    async def _publish_in(
        self, tx: calls.Transaction, topic: str, parts: list[tuple[int, memoryview]]
    ) -> tuple[list[Published | GoQueueError], bool | GoQueueError]:
        who = Identity(producer_id=tx.producer_id, epoch=tx.epoch, number=tx.number)
        last = None if tx.last is None else Last(tx.last.messages, tx.last.token)
        return await self._broker.transactions.publish_last(who, topic, parts, last)

    async def _fetch(self, call: calls.Fetch, beside: Beside) -> Reply:
        topic = self._broker.topic(call.topic)
        parts = [
            fetch.FetchPart(
                partition=part.partition, offset=part.offset, end_offset=part.end_offset
            )
            for part in call.parts
        ]
        outcomes = await fetch.fetch(
            topic,
            parts,
            bytes_max=call.bytes_max,
            wait_ms=call.wait_ms,
            room=beside.room,
            lens=Lens(show_delayed=call.show_delayed, is_committed=call.is_committed),
            in_place=call.in_place,
        )
        answers: list[calls.FetchedPart] = []
        payload: list[Buffer] = []
        files: list[File] = []
        for part, outcome in zip(parts, outcomes, strict=True):
            if isinstance(outcome, GoQueueError):
                answers.append(_failed_fetch(topic, part, outcome))
                continue
            payload.append(outcome.frames)
            answers += _fetched(outcome)
            files += [found.extent.file for found in outcome.extents]
        return Reply(calls.Fetched(answers), payload, files=files)

    async def _offsets(self, call: calls.Offsets, _: Beside) -> Reply:
        topic = self._broker.topic(call.topic)
        parts = []
        for partition in topic.partitions:
            found = None
            if call.timestamp_us is not None:
                found = partition.find_time(call.timestamp_us)
            parts.append(
                calls.OffsetsPart(
                    partition.name.partition,
                    partition.log.start_offset,
                    Lens(is_committed=call.is_committed).end_of(partition),
                    -1 if found is None else found,
                )
            )
        return Reply(calls.OffsetsReply(parts))


def _produced(partition: int, outcome: Published | GoQueueError) -> calls.ProducedPart:
    if isinstance(outcome, GoQueueError):
        return calls.ProducedPart(partition, -1, failure=failure_of(outcome))
    repeats = [calls.RepeatPart(one.row, one.partition, one.offset) for one in outcome.repeats]
    return calls.ProducedPart(
        partition,
        outcome.base_offset,
        outcome.is_duplicate,
        repeats,
        misfits=dict(islice(outcome.misfits.items(), MISFITS_TOLD_MAX)),
    )


def _fetched(outcome: fetch.Fetched) -> list[calls.FetchedPart]:
    """Return what one partition had, in as many parts as are to be read one after the other."""
    ends = outcome.start_offset, outcome.end_offset
    if not outcome.extents:
        return [
            calls.FetchedPart(
                outcome.partition,
                len(outcome.frames),
                outcome.next_offset,
                *ends,
                [(gap.start_offset, gap.end_offset) for gap in outcome.gaps],
                hidden=[(gap.start_offset, gap.end_offset) for gap in outcome.hidden],
            )
        ]
    places = [(found, found.extent, found.extent.file.handle) for found in outcome.extents]
    return [
        calls.FetchedPart(
            outcome.partition,
            extent.size,
            extent.next_offset,
            *ends,
            place=calls.Place(os.getpid(), *handle, extent.position),
            aborted=[(gap.start_offset, gap.end_offset) for gap in found.aborted],
        )
        for found, extent, handle in places
        if handle is not None
    ]


def _failed_fetch(topic: Topic, part: fetch.FetchPart, error: GoQueueError) -> calls.FetchedPart:
    start = end = -1
    if part.partition < len(topic.partitions):
        partition = topic.partitions[part.partition]
        start, end = partition.log.start_offset, partition.visible_offset
    return calls.FetchedPart(part.partition, 0, part.offset, start, end, failure=failure_of(error))


def _state(topic: Topic) -> calls.TopicState:
    return calls.TopicState(
        topic.record.name,
        topic.record.created_ms,
        msgspec.to_builtins(topic.settings),
        [
            calls.PartitionState(
                partition.name.partition,
                partition.log.start_offset,
                partition.visible_offset,
                partition.log.size_bytes,
            )
            for partition in topic.partitions
        ],
    )


def _summary(topic: Topic) -> calls.TopicSummary:
    logs = [partition.log for partition in topic.partitions]
    return calls.TopicSummary(
        topic.record.name,
        len(logs),
        sum(log.end_offset - log.start_offset for log in logs),
        sum(log.size_bytes for log in logs),
    )
