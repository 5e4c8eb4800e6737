"""What nodes of a cluster say to each other about transactions.

A *coordinator* leads the partition of ``__transactions`` that knows a producer; a *leader* leads a
partition that a transaction writes to or settles in.

    leader -> coordinator    TX_ADD     a transaction touches partitions here; answered when durable
    coordinator -> leader    TX_MARK    a transaction has ended; answered when committed
    leader -> coordinator    TX_ASK     what became of transactions that are open here for long

Structs travel as msgpack arrays: a field may be added at the end with a default, never removed.
Whatever is counted has its limit here, and is refused beyond it before it is believed.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Final

import msgspec

from goqueue.base.cluster_limits import PLAIN_PRODUCERS_OWNER, TX_PLACES_MAX
from goqueue.base.limits import NAME_CHARACTERS_MAX, PARTITIONS_MAX
from goqueue.wire.calls import Call, Failure, Natural
from goqueue.wire.tx_calls import (
    EpochNumber,
    ProducerNumber,
    TransactionalId,
    TransactionNumber,
    TxWho,
)

SomeName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
GroupOrNone = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]
PartitionOf = Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS_MAX)]
CoordinatorOf = Annotated[int, msgspec.Meta(ge=0, lt=PLAIN_PRODUCERS_OWNER)]
SomeNumber = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
OffsetOrNone = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]
NO_OFFSET: Final = -1


class TxPlace(Call, frozen=True):
    """What a transaction has in a partition: messages, or with a group something to settle."""

    topic: SomeName
    partition: PartitionOf
    group: GroupOrNone = ""


TxPlaces = Annotated[list[TxPlace], msgspec.Meta(max_length=TX_PLACES_MAX, min_length=1)]


class TxAdd(Call, frozen=True):
    """Add places to the open transaction, or to the one that begins with this request."""

    who: TxWho
    places: TxPlaces


class TxAdded(Call, frozen=True):
    """The places are known durably: whatever becomes of the transaction, they will hear of it."""


class MarkKind(IntEnum):
    """What a leader is told of a transaction."""

    ABORT = 0
    COMMIT = 1
    STORE = 2
    """It goes on; what it has here must be durable before it may be decided."""


class TxMark(Call, frozen=True):
    """One place of a transaction. With an offset, a group has settled everything before it."""

    topic: SomeName
    partition: PartitionOf
    group: GroupOrNone = ""
    offset: OffsetOrNone = NO_OFFSET


class TxMarks(Call, frozen=True):
    """Tell a leader of a transaction, by the coordinator of an epoch."""

    coordinator: CoordinatorOf
    """The partition of ``__transactions``."""
    epoch: Natural
    kind: MarkKind
    number: SomeNumber
    transactional_id: TransactionalId
    producer_id: ProducerNumber
    producer_epoch: EpochNumber
    marks: Annotated[list[TxMark], msgspec.Meta(max_length=TX_PLACES_MAX, min_length=1)]


class NotMarked(Call, frozen=True):
    """Why a place could not be told, by its position among the marks."""

    row: Annotated[int, msgspec.Meta(ge=0, lt=TX_PLACES_MAX)]
    failure: Failure


class TxMarked(Call, frozen=True):
    """Everything is committed where nothing failed."""

    failures: Annotated[Sequence[NotMarked], msgspec.Meta(max_length=TX_PLACES_MAX)] = ()


class AskedPlace(Call, frozen=True):
    """A transaction that a leader has open in a place."""

    number: SomeNumber
    place: TxPlace


class TxAsk(Call, frozen=True):
    """Ask a coordinator what it knows.

    ``asked`` are transactions that are open at the leader. ``producer_id`` is one whose
    transactional id and latest transaction are wanted. ``group`` is one whose committed offsets
    must be final.
    """

    coordinator: CoordinatorOf
    asked: Annotated[Sequence[AskedPlace], msgspec.Meta(max_length=TX_PLACES_MAX)] = ()
    producer_id: ProducerNumber = 0
    group: GroupOrNone = ""


class TxFate(IntEnum):
    """What a coordinator knows of a transaction."""

    UNKNOWN = 0
    """It was never added here, or is over for long."""
    OPEN = 1
    """It goes on, and the place is known."""
    COMMITTED = 2
    ABORTED = 3


class TxAnswer(Call, frozen=True):
    """The fates of what was asked for, in order; id and latest transaction of the producer."""

    fates: Annotated[Sequence[TxFate], msgspec.Meta(max_length=TX_PLACES_MAX)] = ()
    transactional_id: TransactionalId = ""
    number: TransactionNumber = 0
