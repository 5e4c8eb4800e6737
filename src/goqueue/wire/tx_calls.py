"""The headers of transactions on the native protocol. Every one of them carries the number."""

from typing import Annotated, Final

import msgspec

from goqueue.base.limits import (
    NAME_CHARACTERS_MAX,
    SETTLE_PARTS_MAX,
    TX_ADOPTED_MAX,
    TX_PARTITIONS_MAX,
    TX_TIMEOUT_MS,
    TX_TIMEOUT_MS_MAX,
    TX_TOKEN_CHARACTERS_MAX,
)
from goqueue.wire.calls import Call, Name, Number
from goqueue.wire.queue_calls import OffsetOf, SettlePart

TransactionNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
ProducerNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
EpochNumber = Annotated[int, msgspec.Meta(ge=0, lt=2**16)]
TransactionalId = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)]
UNCOUNTED: Final = -1
"""The messages of a transaction were all acked, and are not counted again."""

Token = Annotated[str, msgspec.Meta(max_length=TX_TOKEN_CHARACTERS_MAX)]


class TxLife(Call, frozen=True):
    """Who the producer is now, and the token of its last commit."""

    producer_id: int
    epoch: int
    token: str


class TxWho(Call, frozen=True):
    """Who speaks, and of which transaction; number 0 where there is none yet."""

    producer_id: ProducerNumber
    epoch: EpochNumber
    number: TransactionNumber = 0


class TxInit(Call, frozen=True):
    """Begin a life of a transactional id; earlier ones are fenced.

    With ``who`` only if that is the latest life: who is fenced itself fences nobody.
    """

    transactional_id: TransactionalId
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=TX_TIMEOUT_MS_MAX)] = TX_TIMEOUT_MS
    who: TxWho | None = None


class TxNumber(Call, frozen=True):
    """The number of a transaction that began."""

    number: int


class TxHold(Call, frozen=True):
    """Let the transaction ack messages a group has leased; each part says ``ack``."""

    who: TxWho
    group: Name
    parts: Annotated[list[SettlePart], msgspec.Meta(max_length=SETTLE_PARTS_MAX, min_length=1)]


class TxOffsets(Call, frozen=True):
    """Let the transaction commit offsets of a group."""

    who: TxWho
    group: Name
    offsets: Annotated[list[OffsetOf], msgspec.Meta(max_length=TX_PARTITIONS_MAX)]


class TxAdopt(Call, frozen=True):
    """Let detached transactions end as this one does: all of them, or none is adopted."""

    who: TxWho
    children: Annotated[list[TxWho], msgspec.Meta(max_length=TX_ADOPTED_MAX, min_length=1)]


class TxEnd(Call, frozen=True):
    """Commit or abort. A commit that says how many messages there are need not wait for acks."""

    who: TxWho
    is_commit: bool
    token: Token = ""
    messages: Annotated[int, msgspec.Meta(ge=UNCOUNTED, lt=2**62)] = UNCOUNTED


class TxEnded(Call, frozen=True):
    """Whether the transaction has ended; if not, fewer messages are there than was said."""

    is_ended: bool = True


class TxName(Call, frozen=True):
    """Name a transactional id."""

    transactional_id: TransactionalId


class TxState(Call, frozen=True):
    """Where a transactional producer stands. ``open_ms`` is how long its transaction is open."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    number: int
    begun_at_ms: int
    open_ms: int
    timeout_ms: int
    partitions: list[tuple[str, int]]
    groups: list[str]
    token: str
    is_detached: bool = False
    adopter: str = ""
    adopted: tuple[str, ...] = ()


class TxList(Call, frozen=True):
    """Every transactional producer."""

    producers: list[TxState]


class TxListed(Call, frozen=True):
    """Ask for producers: all of them, or those with an open transaction."""

    is_open_only: bool = False
    limit: Number = 1_000
