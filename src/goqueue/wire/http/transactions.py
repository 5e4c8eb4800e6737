"""Transactions as JSON."""

from typing import Annotated, Literal

import msgspec

from goqueue.wire.http.messages import EncodingText
from goqueue.wire.http.topics import Int64

TransactionIdText = Annotated[
    str, msgspec.Meta(examples=["txn-1700000000000000000-3f2a9c0d5e7b1846"])
]
StateText = Annotated[
    str,
    msgspec.Meta(
        examples=[
            "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
            "Dead",
        ]
    ),
]  # fmt: skip


class ProducerInit(msgspec.Struct, frozen=True, kw_only=True):
    """A life of a producer to begin. Without an id it is one that has no transactions."""

    transactional_id: str | None = None
    transaction_timeout_ms: Int64 | None = None


class ProducerLife(msgspec.Struct, frozen=True, kw_only=True):
    """Who the producer is now, and the token of the last commit under its id."""

    producer_id: int
    epoch: int
    token: str = ""


class ProducerHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A producer is there."""

    transactional_id: str | None = None
    epoch: Int64


class HeartbeatTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The producer was heard."""

    status: Literal["ok"] = "ok"


class TransactionCall(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks. With a ``transaction_id`` only of that transaction, else of the latest."""

    producer_id: Int64
    epoch: Int64
    transactional_id: str | None = None
    transaction_id: TransactionIdText | None = None


class TransactionBegun(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction is open."""

    transaction_id: TransactionIdText


class TransactionPublish(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the open transaction.

    Partition -1 lets the key decide. ``sequence`` counts the messages of this life of the producer
    in the partition from 0: a repeat is recognised by it. Without one there are no repeats.
    """

    producer_id: Int64
    epoch: Int64
    transactional_id: str | None = None
    transaction_id: TransactionIdText | None = None
    topic: str | None = None
    partition: Int64 = 0
    sequence: Int64 | None = None
    value: str
    key: str | None = None
    priority: str | None = None
    headers: dict[str, str | None] | None = None
    encoding: EncodingText | None = None
    key_encoding: EncodingText | None = None
    headers_encoding: EncodingText | None = None
    timestamp: str | None = None
    delay: str | None = None
    deliver_at: str | None = msgspec.field(default=None, name="deliverAt")
    delay_id: str | None = None
    on_conflict: str | None = None


class TransactionPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Where the message is; of a repeat, where its original is."""

    partition: int
    offset: int
    duplicate: bool


class PartitionAdd(TransactionCall, frozen=True, kw_only=True):
    """A partition the transaction will write to."""

    topic: str | None = None
    partition: Int64 = 0


class PartitionAdded(msgspec.Struct, frozen=True, kw_only=True):
    """The partition will hear of the transaction's end."""

    status: Literal["added"] = "added"


class TransactionCommit(TransactionCall, frozen=True, kw_only=True):
    """A transaction to commit. The token is given to the next life of the producer."""

    token: str = ""


class TransactionEnded(msgspec.Struct, frozen=True, kw_only=True):
    """How the transaction ended."""

    status: Literal["committed", "aborted"]


class PartitionOf(msgspec.Struct, frozen=True, kw_only=True):
    """A partition."""

    topic: str
    partition: int


class TransactionState(msgspec.Struct, frozen=True, kw_only=True):
    """An open transaction."""

    transaction_id: TransactionIdText
    transactional_id: str
    producer_id: int
    epoch: int
    state: StateText
    start_time: str
    timeout_ms: int
    partitions: list[PartitionOf]
    groups: list[str]


class TransactionList(msgspec.Struct, frozen=True, kw_only=True):
    """Every open transaction, in the order of their transactional ids."""

    transactions: list[TransactionState]
    count: int


class ProducerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many producers there are."""

    active: int
    sequence_states: int
    next_producer_id: int


class LogSize(msgspec.Struct, frozen=True, kw_only=True):
    """How much the coordinator has written and kept."""

    size_bytes: int
    records: int


class TransactionStats(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions in numbers; of every transactional id its latest one counts."""

    active_transactions: int
    transactions_by_state: dict[str, int]
    producers: ProducerCounts
    log: LogSize
