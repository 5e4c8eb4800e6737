"""Publishing: frames of producers, and messages that come one by one."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from msgspec import UNSET, UnsetType

from goqueue.base.deeds import Deed
from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    TooLargeError,
    UnknownProducerError,
)
from goqueue.base.grant import Grant
from goqueue.base.ids import Epoch, Offset, PartitionId, ProducerId, TopicName
from goqueue.base.ids import Sequence as SequenceNumber
from goqueue.base.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.columns import batch_of_drafts
from goqueue.core.record.message import PRIORITY_NAMES, Draft
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.core.topics.settings import OS
from goqueue.core.tx.producer import Identity
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.acks import Acks
from goqueue.runtime.log.places import outcomes_of
from goqueue.runtime.log.plain import begin_plain, publish_plain
from goqueue.runtime.log.published import Published, Reach
from goqueue.runtime.log.small_requests import Part
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.tx.transactions import Last
from goqueue.service.drafts import Columns, Now, check_count, draft_all, draft_one
from goqueue.service.gate import Gate
from goqueue.service.tx import identity_of
from goqueue.service.verb import RequestContext, failure_of, granted_verb, verb
from goqueue.wire import calls, tx_calls
from goqueue.wire.http import messages as said
from goqueue.wire.http.transactions import TransactionPublish, TransactionPublished
from goqueue.wire.times import format_time_us

WAITING: Final = ("leader", "all")
ACKS: Final = tuple(one.value for one in Acks)
BY_KEY: Final = -1
MISFITS_TOLD_MAX: Final = 100
"""So many refused messages of a part are told why; a reply has its bounds."""

Place = tuple[PartitionId, Offset]
Answered = Callable[[calls.Produced], None]
"""Takes the answer of a request when there is one."""


class Publishing:
    """What producers ask for."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._gate = gate
        self._topics = broker.topics

    @verb(Deed.INIT_PRODUCER, Deed.TX_INIT)
    async def init_producer(self, call: calls.InitProducer) -> calls.ProducerIdentity:
        """Give an idempotent producer its identity, or the next epoch of the one it has."""
        if call.producer_id:
            self._broker.check_free(call.producer_id)
            stamp = self._broker.renew_producer(producer_id=call.producer_id, epoch=call.epoch)
            return calls.ProducerIdentity(stamp.producer_id, stamp.epoch)
        first, *others = [await self._broker.producer_ids.take() for _ in range(call.count)]
        return calls.ProducerIdentity(
            first.producer_id, first.epoch, [one.producer_id for one in others]
        )

    # Frames.

    @granted_verb(Deed.PUBLISH)
    def begin_produce(
        self, grant: Grant, call: calls.Produce, payload: memoryview, done: Answered
    ) -> calls.Produced | bool:
        """Publish without a task: return the answer, or True if ``done`` gets it later.

        False means that nothing was done, and the request is one for ``produce``.
        """
        if call.transaction is not None or call.acks not in WAITING:
            return False
        topic = self._topics.get(TopicName(call.topic))
        if topic is None:
            return False
        if call.acks == Acks.LEADER and any(
            topic.is_replicated(one.partition) for one in call.parts
        ):
            # Together with others it would wait for the replicas.
            return False
        if len(call.parts) > 1:
            return _begin_parts(grant, topic, call.parts, payload, done)
        (part,) = call.parts
        number = part.partition
        if part.size != len(payload):
            return False

        def answer(outcome: Published | GoQueueError) -> calls.Produced:
            produced = [_produced(number, outcome)]
            return calls.Produced(
                topic.settings.ack_durability, produced, replicas=_replicas([outcome])
            )

        begun: Published | GoQueueError | bool | None
        begun = topic.small.publish_at_once(grant, number, payload)
        if begun is None:
            begun = topic.small.begin(grant, number, payload, lambda outcome: done(answer(outcome)))
        return begun if isinstance(begun, bool) else answer(begun)

    @granted_verb(Deed.PUBLISH)
    async def produce(
        self, grant: Grant, call: calls.Produce, context: RequestContext
    ) -> calls.Produced:
        """Publish frames, in a transaction or not; each part has its own outcome."""
        payload = context.payload
        if call.acks not in ACKS:
            raise InvalidRequestError(f"acks: must be one of {', '.join(ACKS)}")
        parts = _cut(call.parts, payload)
        if parts is None:
            raise InvalidRequestError("parts: their sizes do not add up to the payload")
        topic = self._broker.topic(call.topic)
        acks = Acks(call.acks)
        ended: bool | GoQueueError = False
        if call.transaction is not None:
            outcomes, ended = await self._produce_in(grant, call.transaction, call.topic, parts)
        else:
            outcomes = await topic.acknowledge(await topic.append_all(grant, parts), acks=acks)
        # Who does not wait for the disk is not told that it has the message.
        durability = OS if acks is Acks.NONE else topic.settings.ack_durability
        return calls.Produced(
            durability,
            [
                _produced(part.partition, one)
                for part, one in zip(call.parts, outcomes, strict=True)
            ],
            ended is True,
            failure_of(ended) if isinstance(ended, GoQueueError) else None,
            _replicas(outcomes),
        )

    async def _produce_in(
        self, grant: Grant, tx: calls.Transaction, topic: str, parts: list[tuple[int, memoryview]]
    ) -> tuple[list[Published | GoQueueError], bool | GoQueueError]:
        self._check_transaction(grant, tx.producer_id)
        who = Identity(producer_id=tx.producer_id, epoch=tx.epoch, number=tx.number)
        last = None if tx.last is None else Last(tx.last.messages, tx.last.token)
        return await self._broker.transactions.publish_last(grant, who, topic, parts, last)

    def _check_transaction(self, grant: Grant, producer_id: int) -> None:
        """Raise if the transaction of a producer is none that the caller may write in.

        A number that belongs to none is refused by what is asked for.
        """
        name = self._broker.transactions.name_of(producer_id)
        if name is not None:
            self._gate.admit(grant.caller, Deed.TX_ADD_PARTITION, (name,))

    # Messages.

    @granted_verb(Deed.PUBLISH)
    def begin_message(
        self, grant: Grant, name: str, columns: Columns, done: Callable[[said.Published], None]
    ) -> said.Published | bool:
        """Publish one message without a task, as ``begin_produce`` does with frames."""
        topic = self._topics.get(TopicName(name))
        if topic is None:
            return False
        (key,), (value,) = columns

        def answer(outcome: Published | GoQueueError) -> said.Published:
            if isinstance(outcome, GoQueueError):
                result = _result(outcome)
            else:
                result = said.PublishResult(outcome.partition, outcome.base_offset)
            return said.Published([result], topic.settings.ack_durability)

        begun = begin_plain(
            grant,
            topic,
            key,
            value,
            timestamp_us=self._broker.clock.now_us(),
            done=lambda outcome: done(answer(outcome)),
        )
        return begun if isinstance(begun, bool) else answer(begun)

    @granted_verb(Deed.PUBLISH)
    async def publish_columns(self, grant: Grant, name: str, columns: Columns) -> said.Published:
        """Publish messages that are keys and values and nothing else."""
        topic = self._broker.topic(name)
        now_us = self._broker.clock.now_us()
        reach = Reach()
        outcomes = await publish_plain(grant, topic, *columns, timestamp_us=now_us, reach=reach)
        results = [
            said.PublishResult(*outcome) if type(outcome) is tuple else _result(outcome)
            for outcome in outcomes
        ]
        return said.Published(results, topic.settings.ack_durability, self._copies(reach))

    @granted_verb(Deed.PUBLISH)
    async def publish(
        self,
        grant: Grant,
        name: str,
        messages: list[said.PublishMessage],
        *,
        caller: bytes | None = None,
    ) -> said.Published:
        """Publish messages; each has its own result, in the same order."""
        topic = self._broker.topic(name)
        check_count(len(messages))
        drafts = draft_all(messages, topic, now=Now.of(self._broker.clock), caller=caller)
        good = [draft for draft in drafts if not isinstance(draft, GoQueueError)]
        reach = Reach()
        places = iter(await topic.publish_drafts(grant, good, reach) if good else ())
        results: list[said.PublishResult] = []
        for draft, message in zip(drafts, messages, strict=True):
            if isinstance(draft, GoQueueError):
                self._broker.metrics.publish_failed(topic.record.name, draft.code)
                results.append(_result(draft))
            else:
                lane = PRIORITY_NAMES[draft[0].priority] if message.priority else None
                results.append(_result(next(places), lane, draft[0].deliver_at_us))
        return said.Published(results, topic.settings.ack_durability, self._copies(reach))

    def _copies(self, reach: Reach) -> int | UnsetType:
        """Return how many nodes have the messages of a request; a broker alone does not say."""
        return UNSET if self._broker.forwarding is None else reach.replicas

    @granted_verb(Deed.PUBLISH)
    async def forward(self, grant: Grant, name: str, message: said.Forward) -> Place:
        """Publish one message into a given partition, for another node."""
        topic = self._broker.topic(name)
        if len(message.value) > VALUE_BYTES_MAX or len(message.key or b"") > KEY_BYTES_MAX:
            raise TooLargeError(
                f"the limit is {KEY_BYTES_MAX} bytes for a key and {VALUE_BYTES_MAX} for a value"
            )
        now_us = self._broker.clock.now_us()
        draft = Draft(value=message.value, key=message.key or None, timestamp_us=now_us)
        (outcome,) = await topic.publish_drafts(grant, [(draft, message.partition)])
        if isinstance(outcome, GoQueueError):
            raise outcome
        return outcome

    @granted_verb(Deed.PUBLISH)
    async def publish_in(
        self,
        grant: Grant,
        message: TransactionPublish,
        call: tx_calls.TxWho,
        *,
        caller: bytes | None,
    ) -> TransactionPublished:
        """Publish one message that is seen when its transaction is committed, or never."""
        if not message.topic:
            raise InvalidRequestError("topic is required")
        self._check_transaction(grant, call.producer_id)
        topic = self._broker.topic(message.topic)
        draft = draft_one(_plain(message), now=Now.of(self._broker.clock), caller=caller)
        partition = topic.choose(draft, None if message.partition == BY_KEY else message.partition)
        transactions, name = self._broker.transactions, message.transactional_id or None
        who = await transactions.resolve(identity_of(call), name)
        frame = _frame(draft, _stamp(message), who.number or 0)
        (outcome,) = await transactions.publish(
            grant, who, message.topic, [(partition, memoryview(frame))]
        )
        return _placed(outcome)


def _replicas(outcomes: Sequence[Published | GoQueueError]) -> int:
    """Return how many nodes have all messages of a request that were taken."""
    return min((one.replicas for one in outcomes if isinstance(one, Published)), default=1)


def _begin_parts(
    grant: Grant,
    topic: Topic,
    asked: Sequence[calls.ProducePart],
    payload: memoryview,
    done: Answered,
) -> calls.Produced | bool:
    """Publish a request of several parts without a task, as ``Publishing.begin_produce`` does."""
    parts = _cut(asked, payload)
    if parts is None:
        return False

    def answer(outcomes: list[Published | GoQueueError]) -> calls.Produced:
        produced = [
            _produced(part.partition, one) for part, one in zip(asked, outcomes, strict=True)
        ]
        return calls.Produced(topic.settings.ack_durability, produced, replicas=_replicas(outcomes))

    begun: list[Published | GoQueueError] | bool | None
    begun = topic.small.publish_parts_at_once(grant, parts)
    if begun is None:
        begun = topic.small.begin_parts(grant, parts, lambda outcomes: done(answer(outcomes)))
    return begun if isinstance(begun, bool) else answer(begun)


def _cut(parts: Sequence[calls.ProducePart], payload: memoryview) -> list[Part] | None:
    """Return the frames of each part, or None if their sizes do not add up to the payload."""
    found: list[Part] = []
    position = 0
    for part in parts:
        found.append((part.partition, payload[position : position + part.size]))
        position += part.size
    return found if position == len(payload) else None


def _produced(partition: int, outcome: Published | GoQueueError) -> calls.ProducedPart:
    if isinstance(outcome, GoQueueError):
        return calls.ProducedPart(partition, -1, failure=failure_of(outcome))
    if not (outcome.repeats or outcome.misfits or outcome.conflicts):
        return calls.ProducedPart(partition, outcome.base_offset, outcome.is_duplicate)
    repeats = [calls.RepeatPart(one.row, one.partition, one.offset) for one in outcome.repeats]
    return calls.ProducedPart(
        partition,
        outcome.base_offset,
        outcome.is_duplicate,
        repeats,
        misfits=dict(islice(outcome.misfits.items(), MISFITS_TOLD_MAX)),
        conflicts=sorted(outcome.conflicts),
    )


def _result(
    outcome: Place | GoQueueError, priority: str | None = None, due_us: int | None = None
) -> said.PublishResult:
    if isinstance(outcome, GoQueueError):
        return said.PublishResult(-1, -1, error=outcome.message, code=outcome.code)
    if due_us is None:
        return said.PublishResult(*outcome, priority)
    return said.PublishResult(*outcome, priority, delayed=True, deliver_at=format_time_us(due_us))


def _plain(message: TransactionPublish) -> said.PublishMessage:
    return said.PublishMessage(
        value=message.value,
        key=message.key,
        priority=message.priority,
        headers=message.headers,
        encoding=message.encoding,
        key_encoding=message.key_encoding,
        headers_encoding=message.headers_encoding,
        timestamp=message.timestamp,
        delay=message.delay,
        deliver_at=message.deliver_at,
        delay_id=message.delay_id,
        on_conflict=message.on_conflict,
    )


def _stamp(message: TransactionPublish) -> ProducerStamp:
    if message.sequence is None or message.producer_id <= 0:
        return NO_STAMP
    if message.sequence < 0:
        raise OutOfOrderSequenceError(f"sequence check failed: {message.sequence} is negative")
    # Another epoch is told by the coordinator; here it must only fit.
    epoch = min(max(message.epoch, 0), 2**16 - 1)
    return ProducerStamp(
        ProducerId(message.producer_id), Epoch(epoch), SequenceNumber(message.sequence)
    )


def _frame(draft: Draft, stamp: ProducerStamp, number: int) -> bytes:
    batch, column_set = batch_of_drafts([draft])
    packed = pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=draft.timestamp_us,
        last_timestamp_us=draft.timestamp_us,
        transaction=number,
    )
    return packed.frame(stamp)


def _placed(outcome: Published | GoQueueError) -> TransactionPublished:
    if isinstance(outcome, (OutOfOrderSequenceError, UnknownProducerError)):
        raise OutOfOrderSequenceError(f"sequence check failed: {outcome.message}")
    if isinstance(outcome, GoQueueError):
        raise outcome
    (place,) = outcomes_of(outcome, 1)
    if isinstance(place, GoQueueError):
        raise place
    partition, offset = place
    return TransactionPublished(partition=partition, offset=offset, duplicate=outcome.is_duplicate)
