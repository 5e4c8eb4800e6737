"""Transactions over HTTP."""

import re
import sys
from http import HTTPStatus
from typing import Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import TX_TIMEOUT_MS
from goqueue.base.units import NS_PER_MS, US_PER_MS
from goqueue.service.drafts import TRACEPARENT, read_caller
from goqueue.service.service import Service
from goqueue.transport.http.call import Call, parse_int64
from goqueue.transport.http.operation import Operation
from goqueue.transport.http.reply import NO_TOPIC, Response, json_reply
from goqueue.wire.calls import InitProducer
from goqueue.wire.http.transactions import (
    HeartbeatTaken,
    PartitionAdd,
    PartitionAdded,
    PartitionOf,
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
from goqueue.wire.tx_calls import TxEnd, TxInit, TxListed, TxState, TxWho

TAG: Final = "transactions"

_INIT: Final = msgspec.json.Decoder(ProducerInit)
_HEARTBEAT: Final = msgspec.json.Decoder(ProducerHeartbeat)
_CALL: Final = msgspec.json.Decoder(TransactionCall)
_COMMIT: Final = msgspec.json.Decoder(TransactionCommit)
_PUBLISH: Final = msgspec.json.Decoder(TransactionPublish)
_ADD: Final = msgspec.json.Decoder(PartitionAdd)
_ID: Final = re.compile(r"txn-\d{1,20}-([0-9a-f]{16})", re.ASCII)


class TransactionRoutes:
    """Coordinates transactions of producers that speak HTTP."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tx = service.tx

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be done with transactions."""
        bad, absent, taken = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
        large, busy = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.SERVICE_UNAVAILABLE
        errors = (bad, absent, taken, busy)
        return (
            Operation(
                method="POST", path="/transactions/publish", answer=self.publish_in_transaction,
                deed=Deed.PUBLISH, tag=TAG, body=TransactionPublish, reply=TransactionPublished,
                errors=(*errors, large), absent=NO_TOPIC,
            ),
            Operation(
                method="POST", path="/transactions/begin", answer=self.begin_transaction, tag=TAG,
                deed=Deed.TX_BEGIN, body=TransactionCall, reply=TransactionBegun, errors=errors,
            ),
            Operation(
                method="POST", path="/transactions/add-partition", answer=self.add_partition,
                deed=Deed.TX_ADD_PARTITION,
                tag=TAG, body=PartitionAdd, reply=PartitionAdded, errors=errors,
            ),
            Operation(
                method="POST", path="/transactions/commit", answer=self.commit_transaction,
                deed=Deed.TX_END,
                tag=TAG, body=TransactionCommit, reply=TransactionEnded, errors=errors,
            ),
            Operation(
                method="POST", path="/transactions/abort", answer=self.abort_transaction, tag=TAG,
                deed=Deed.TX_END, body=TransactionCall, reply=TransactionEnded, errors=errors,
            ),
            Operation(
                method="POST", path="/producers/init", answer=self.init_producer, tag=TAG,
                deed=Deed.TX_INIT, body=ProducerInit, reply=ProducerLife, errors=(bad, busy),
            ),
            Operation(
                method="POST", path="/producers/{producer_id}/heartbeat",
                answer=self.heartbeat_producer, tag=TAG, body=ProducerHeartbeat,
                deed=Deed.TX_HEARTBEAT, reply=HeartbeatTaken, errors=errors,
            ),
            Operation(
                method="GET", path="/transactions", answer=self.list_transactions, tag=TAG,
                deed=Deed.TX_LIST, reply=TransactionList,
            ),
            Operation(
                method="GET", path="/transactions/stats", answer=self.count_transactions, tag=TAG,
                deed=Deed.TX_LIST, reply=TransactionStats,
            ),
        )  # fmt: skip

    # Producers.

    async def init_producer(self, call: Call) -> Response:
        """Begin a life of a transactional id: earlier ones are fenced, what they left is aborted.

        Without the field an idempotent producer gets its identity, which has no transactions.
        """
        wanted = await call.body(_INIT, bytes_max=self._service.config.http_body_bytes_max)
        if wanted.transactional_id is None:
            made = await self._service.publishing.init_producer(call.grant, InitProducer())
            return json_reply(ProducerLife(producer_id=made.producer_id, epoch=made.epoch))
        if not wanted.transactional_id:
            raise InvalidRequestError("transactional_id is required")
        timeout_ms = wanted.transaction_timeout_ms or TX_TIMEOUT_MS
        life = await self._tx.init(call.grant, TxInit(wanted.transactional_id, timeout_ms))
        return json_reply(
            ProducerLife(producer_id=life.producer_id, epoch=life.epoch, token=life.token)
        )

    async def heartbeat_producer(self, call: Call) -> Response:
        """Say that a producer is there; one that is silent for too long loses its transaction."""
        said = await call.body(_HEARTBEAT, bytes_max=self._service.config.http_body_bytes_max)
        producer_id = parse_int64(call.path["producer_id"])
        if producer_id is None:
            raise InvalidRequestError("invalid producer_id")
        who = TxWho(producer_id, said.epoch)
        await self._tx.heartbeat(call.grant, who, said.transactional_id or None)
        return json_reply(HeartbeatTaken())

    # The life of a transaction.

    async def begin_transaction(self, call: Call) -> Response:
        """Begin a transaction; a producer has one at a time."""
        said = await call.body(_CALL, bytes_max=self._service.config.http_body_bytes_max)
        who = TxWho(said.producer_id, said.epoch)
        begun = await self._tx.begin_named(call.grant, who, said.transactional_id or None)
        return json_reply(TransactionBegun(transaction_id=_id_of(begun)))

    async def publish_in_transaction(self, call: Call) -> Response:
        """Publish one message that is seen when the transaction is committed, or never."""
        limit = self._service.config.http_publish_body_bytes_max
        said = await call.body(_PUBLISH, bytes_max=limit)
        publishing, caller = self._service.publishing, read_caller(call.header(TRACEPARENT))
        return json_reply(await publishing.publish_in(call.grant, said, _who(said), caller=caller))

    async def add_partition(self, call: Call) -> Response:
        """Let the transaction write to a partition; publishing does so by itself."""
        said = await call.body(_ADD, bytes_max=self._service.config.http_body_bytes_max)
        if not said.topic:
            raise InvalidRequestError("topic is required")
        place, name = (said.topic, said.partition), said.transactional_id or None
        await self._tx.add_partition(call.grant, _who(said), place, name)
        return json_reply(PartitionAdded())

    async def commit_transaction(self, call: Call) -> Response:
        """Commit: every message is seen, in all partitions. May be asked again."""
        said = await call.body(_COMMIT, bytes_max=self._service.config.http_body_bytes_max)
        end = TxEnd(_who(said), is_commit=True, token=said.token)
        await self._tx.end(call.grant, end, said.transactional_id or None)
        return json_reply(TransactionEnded(status="committed"))

    async def abort_transaction(self, call: Call) -> Response:
        """Abort: no message is ever seen by a reader of committed ones. May be asked again."""
        said = await call.body(_CALL, bytes_max=self._service.config.http_body_bytes_max)
        end = TxEnd(_who(said), is_commit=False)
        await self._tx.end(call.grant, end, said.transactional_id or None)
        return json_reply(TransactionEnded(status="aborted"))

    # Looking.

    async def list_transactions(self, call: Call) -> Response:
        """Return the transactions that are open or being ended."""
        wanted = TxListed(is_open_only=True, limit=sys.maxsize)
        found = [_state(one) for one in (await self._tx.list_all(call.grant, wanted)).producers]
        return json_reply(TransactionList(transactions=found, count=len(found)))

    async def count_transactions(self, call: Call) -> Response:
        """Return how many transactions and producers there are, and the coordinator's log."""
        return json_reply(await self._tx.stats(call.grant))


def _id_of(state: TxState) -> str:
    return f"txn-{state.begun_at_ms * NS_PER_MS}-{state.number:016x}"


def _who(said: TransactionCall | TransactionPublish) -> TxWho:
    """Return who speaks, and of which transaction if that is said."""
    number = 0
    if said.transaction_id:
        found = _ID.fullmatch(said.transaction_id)
        if found is None or not int(found[1], 16):
            raise InvalidRequestError("invalid transaction_id")
        number = int(found[1], 16)
    return TxWho(said.producer_id, said.epoch, number)


def _state(state: TxState) -> TransactionState:
    return TransactionState(
        transaction_id=_id_of(state),
        transactional_id=state.transactional_id,
        producer_id=state.producer_id,
        epoch=state.epoch,
        state=state.state,
        start_time=format_time_us(state.begun_at_ms * US_PER_MS),
        timeout_ms=state.timeout_ms,
        partitions=[PartitionOf(topic=topic, partition=p) for topic, p in state.partitions],
        groups=state.groups,
    )
