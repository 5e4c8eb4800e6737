"""Transactions over HTTP."""

import re
from collections import Counter
from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    UnknownProducerError,
)
from goqueue.base.ids import Epoch, ProducerId, Sequence, TopicName
from goqueue.base.limits import TX_TIMEOUT_MS
from goqueue.base.units import NS_PER_MS, US_PER_MS
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.columns import batch_of_drafts
from goqueue.core.record.message import Draft
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.core.tx.producer import ABORT, COMMIT, Identity, TxProducer
from goqueue.runtime.broker import TX_TOPIC, Broker
from goqueue.runtime.partition import Published
from goqueue.runtime.places import outcomes_of
from goqueue.transport.http.call import Call, parse_int64
from goqueue.transport.http.drafts import draft_one, read_caller
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import Response, json_reply
from goqueue.transport.http.topics import find_topic
from goqueue.wire.http.messages import PublishMessage
from goqueue.wire.http.transactions import (
    HeartbeatTaken,
    LogSize,
    PartitionAdd,
    PartitionAdded,
    PartitionOf,
    ProducerCounts,
    ProducerHeartbeat,
    ProducerInit,
    ProducerLife,
    TransactionBegun,
    TransactionCall,
    TransactionCommit,
    TransactionEnded,
    TransactionList,
    TransactionPublish,
    TransactionPublished,
    TransactionState,
    TransactionStats,
)
from goqueue.wire.times import format_time_us

TAG: Final = "transactions"
BY_KEY: Final = -1

_INIT: Final = msgspec.json.Decoder(ProducerInit)
_HEARTBEAT: Final = msgspec.json.Decoder(ProducerHeartbeat)
_CALL: Final = msgspec.json.Decoder(TransactionCall)
_COMMIT: Final = msgspec.json.Decoder(TransactionCommit)
_PUBLISH: Final = msgspec.json.Decoder(TransactionPublish)
_ADD: Final = msgspec.json.Decoder(PartitionAdd)
_ID: Final = re.compile(r"txn-\d{1,20}-([0-9a-f]{16})", re.ASCII)


class TransactionRoutes:
    """Coordinates transactions of producers that speak HTTP."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with transactions."""
        bad, absent, taken = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
        large, busy = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.SERVICE_UNAVAILABLE
        errors = (bad, absent, taken, busy)
        return (
            Operation(
                method="POST", path="/transactions/publish", answer=self.publish_in_transaction,
                tag=TAG, body=TransactionPublish, reply=TransactionPublished,
                errors=(*errors, large),
            ),
            Operation(
                method="POST", path="/transactions/begin", answer=self.begin_transaction, tag=TAG,
                body=TransactionCall, reply=TransactionBegun, errors=errors,
            ),
            Operation(
                method="POST", path="/transactions/add-partition", answer=self.add_partition,
                tag=TAG, body=PartitionAdd, reply=PartitionAdded, errors=errors,
            ),
            Operation(
                method="POST", path="/transactions/commit", answer=self.commit_transaction,
                tag=TAG, body=TransactionCommit, reply=TransactionEnded, errors=errors,
            ),
            Operation(
                method="POST", path="/transactions/abort", answer=self.abort_transaction, tag=TAG,
                body=TransactionCall, reply=TransactionEnded, errors=errors,
            ),
            Operation(
                method="POST", path="/producers/init", answer=self.init_producer, tag=TAG,
                body=ProducerInit, reply=ProducerLife, errors=(bad, busy),
            ),
            Operation(
                method="POST", path="/producers/{producer_id}/heartbeat",
                answer=self.heartbeat_producer, tag=TAG, body=ProducerHeartbeat,
                reply=HeartbeatTaken, errors=errors,
            ),
            Operation(
                method="GET", path="/transactions", answer=self.list_transactions, tag=TAG,
                reply=TransactionList,
            ),
            Operation(
                method="GET", path="/transactions/stats", answer=self.count_transactions, tag=TAG,
                reply=TransactionStats,
            ),
        )  # fmt: skip

    # Producers.

    async def init_producer(self, call: Call) -> Response:
        """Begin a life of a transactional id: earlier ones are fenced, what they left is aborted.

        Without the field an idempotent producer gets its identity, which has no transactions.
        """
        wanted = await call.body(_INIT, bytes_max=self._broker.config.http_body_bytes_max)
        if wanted.transactional_id is None:
            stamp = self._broker.init_producer()
            return json_reply(ProducerLife(producer_id=stamp.producer_id, epoch=stamp.epoch))
        if not wanted.transactional_id:
            raise InvalidRequestError("transactional_id is required")
        life = await self._broker.transactions.init(
            wanted.transactional_id, timeout_ms=wanted.transaction_timeout_ms or TX_TIMEOUT_MS
        )
        stamp = life.stamp
        return json_reply(
            ProducerLife(producer_id=stamp.producer_id, epoch=stamp.epoch, token=life.token)
        )

    async def heartbeat_producer(self, call: Call) -> Response:
        """Say that a producer is there; one that is silent for too long loses its transaction."""
        said = await call.body(_HEARTBEAT, bytes_max=self._broker.config.http_body_bytes_max)
        producer_id = parse_int64(call.path["producer_id"])
        if producer_id is None:
            raise InvalidRequestError("invalid producer_id")
        who = Identity(producer_id=producer_id, epoch=said.epoch)
        self._broker.transactions.heartbeat(who, said.transactional_id or None)
        return json_reply(HeartbeatTaken())

    # The life of a transaction.

    async def begin_transaction(self, call: Call) -> Response:
        """Begin a transaction; a producer has one at a time."""
        said = await call.body(_CALL, bytes_max=self._broker.config.http_body_bytes_max)
        who = Identity(producer_id=said.producer_id, epoch=said.epoch)
        transactions = self._broker.transactions
        await transactions.begin(who, said.transactional_id or None)
        begun = _id_of(transactions.find(who))
        return json_reply(TransactionBegun(transaction_id=begun))

    async def publish_in_transaction(self, call: Call) -> Response:
        """Publish one message that is seen when the transaction is committed, or never."""
        limit = self._broker.config.http_publish_body_bytes_max
        said = await call.body(_PUBLISH, bytes_max=limit)
        if not said.topic:
            raise InvalidRequestError("topic is required")
        topic = find_topic(self._broker, said.topic)
        clock = self._broker.clock
        draft = draft_one(
            _message(said),
            now_us=clock.now_us(),
            due_now_ms=clock.due_ms(),
            caller=read_caller(call),
        )
        wanted = None if said.partition == BY_KEY else said.partition
        partition = topic.choose(draft, wanted)
        who = _identity(said)
        producer = self._broker.transactions.find(who, said.transactional_id or None)
        frame = _frame(draft, _stamp(said), producer.number)
        (outcome,) = await self._broker.transactions.publish(
            who, said.topic, [(partition, memoryview(frame))]
        )
        return json_reply(_placed(outcome))

    async def add_partition(self, call: Call) -> Response:
        """Let the transaction write to a partition; publishing does so by itself."""
        said = await call.body(_ADD, bytes_max=self._broker.config.http_body_bytes_max)
        if not said.topic:
            raise InvalidRequestError("topic is required")
        place = (said.topic, said.partition)
        name = said.transactional_id or None
        await self._broker.transactions.add_partitions(_identity(said), [place], name)
        return json_reply(PartitionAdded())

    async def commit_transaction(self, call: Call) -> Response:
        """Commit: every message is seen, in all partitions. May be asked again."""
        said = await call.body(_COMMIT, bytes_max=self._broker.config.http_body_bytes_max)
        name = said.transactional_id or None
        transactions = self._broker.transactions
        await transactions.end(_identity(said), COMMIT, token=said.token, name=name)
        return json_reply(TransactionEnded(status="committed"))

    async def abort_transaction(self, call: Call) -> Response:
        """Abort: no message is ever seen by a reader of committed ones. May be asked again."""
        said = await call.body(_CALL, bytes_max=self._broker.config.http_body_bytes_max)
        name = said.transactional_id or None
        await self._broker.transactions.end(_identity(said), ABORT, name=name)
        return json_reply(TransactionEnded(status="aborted"))

    # Looking.

    async def list_transactions(self, _: Call) -> Response:
        """Return the transactions that are open or being ended."""
        found = [_state(one) for one in self._broker.transactions if _is_open(one)]
        return json_reply(TransactionList(transactions=found, count=len(found)))

    async def count_transactions(self, _: Call) -> Response:
        """Return how many transactions and producers there are, and the coordinator's log."""
        states = Counter(str(one.shown_state) for one in self._broker.transactions)
        topics = self._broker.topics
        journal = topics.get(TopicName(TX_TOPIC))
        logs = [] if journal is None else [one.log for one in journal.partitions]
        remembered = sum(len(one.ledger) for topic in topics.values() for one in topic.partitions)
        return json_reply(
            TransactionStats(
                active_transactions=sum(map(_is_open, self._broker.transactions)),
                transactions_by_state=dict(sorted(states.items())),
                producers=ProducerCounts(
                    active=sum(states.values()),
                    sequence_states=remembered,
                    next_producer_id=self._broker.next_producer_id,
                ),
                log=LogSize(
                    size_bytes=sum(log.size_bytes for log in logs),
                    records=sum(log.end_offset - log.start_offset for log in logs),
                ),
            )
        )


def _is_open(producer: TxProducer) -> bool:
    return producer.is_open


def _id_of(producer: TxProducer) -> str:
    return f"txn-{producer.begun_at_ms * NS_PER_MS}-{producer.number:016x}"


def _identity(said: TransactionCall | TransactionPublish) -> Identity:
    """Return who speaks, and of which transaction if that is said."""
    number = None
    if said.transaction_id:
        found = _ID.fullmatch(said.transaction_id)
        if found is None:
            raise InvalidRequestError("invalid transaction_id")
        number = int(found[1], 16)
    return Identity(producer_id=said.producer_id, epoch=said.epoch, number=number)


def _message(said: TransactionPublish) -> PublishMessage:
    return PublishMessage(
        value=said.value,
        key=said.key,
        priority=said.priority,
        headers=said.headers,
        encoding=said.encoding,
        key_encoding=said.key_encoding,
        headers_encoding=said.headers_encoding,
        timestamp=said.timestamp,
        delay=said.delay,
        deliver_at=said.deliver_at,
        delay_id=said.delay_id,
    )


def _stamp(said: TransactionPublish) -> ProducerStamp:
    if said.sequence is None or said.producer_id <= 0:
        return NO_STAMP
    if said.sequence < 0:
        raise OutOfOrderSequenceError(f"sequence check failed: {said.sequence} is negative")
    # Another epoch is told by the coordinator; here it must only fit.
    epoch = min(max(said.epoch, 0), 2**16 - 1)
    return ProducerStamp(ProducerId(said.producer_id), Epoch(epoch), Sequence(said.sequence))


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


def _state(producer: TxProducer) -> TransactionState:
    return TransactionState(
        transaction_id=_id_of(producer),
        transactional_id=producer.name,
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        state=producer.shown_state,
        start_time=format_time_us(producer.begun_at_ms * US_PER_MS),
        timeout_ms=producer.timeout_ms,
        partitions=[PartitionOf(topic=topic, partition=p) for topic, p in producer.partitions],
        groups=producer.groups,
    )
