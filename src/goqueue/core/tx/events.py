"""What happens to a transactional producer.

Shape: codec. Kept in ``__transactions``. A transaction is known by a number nobody else ever had.
"""

import msgspec

Place = tuple[str, int]
"""A topic and a partition of it."""


class Initialised(msgspec.Struct, frozen=True, tag="i", array_like=True, kw_only=True):
    """A new life of the producer began; the earlier ones are fenced."""

    producer_id: int
    epoch: int
    timeout_ms: int
    at_ms: int
    renews: tuple[int, int] | None = None
    """The id and the epoch of the life that asked for this one."""


class TxBegun(msgspec.Struct, frozen=True, tag="b", array_like=True, kw_only=True):
    """A transaction began, with the partitions its first request writes to."""

    number: int
    at_ms: int
    partitions: list[Place] = []


class PartitionsAdded(msgspec.Struct, frozen=True, tag="p", array_like=True, kw_only=True):
    """The transaction writes to partitions, which must hear of its end."""

    partitions: list[Place]


class OffsetsAdded(msgspec.Struct, frozen=True, tag="o", array_like=True, kw_only=True):
    """The transaction commits offsets of a group: everything before them is settled with it."""

    group: str
    offsets: list[tuple[str, int, int]]


class HoldsAdded(msgspec.Struct, frozen=True, tag="h", array_like=True, kw_only=True):
    """The transaction settles messages a group has leased; its ledgers hold them till the end."""

    group: str
    partitions: list[Place]


class Detached(msgspec.Struct, frozen=True, tag="t", array_like=True, kw_only=True):
    """The producer has said all it had to say; whoever knows the number decides about the rest."""


class Child(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A transaction of another producer that ends as the one that adopted it."""

    name: str
    producer_id: int
    epoch: int
    number: int


class Adopted(msgspec.Struct, frozen=True, tag="f", array_like=True, kw_only=True):
    """Detached transactions end as this one does, whatever that will be."""

    children: list[Child]


class CommitPrepared(msgspec.Struct, frozen=True, tag="c", array_like=True, kw_only=True):
    """The transaction will be committed, whatever happens. ``token`` is the committer's own.

    ``ends`` names its last message in partitions whose disks had not confirmed it yet. A start that
    does not find one of them there knows that nobody was told, and aborts.
    """

    token: str = ""
    ends: list[tuple[str, int, int]] = []


class AbortPrepared(msgspec.Struct, frozen=True, tag="a", array_like=True, kw_only=True):
    """The transaction will be aborted, whatever happens."""

    reason: str = ""


class TxCompleted(msgspec.Struct, frozen=True, tag="d", array_like=True, kw_only=True):
    """Everybody has heard of the end of a transaction and of those before it.

    Without a number it is the latest one.
    """

    number: int = 0


class Ending(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A commit that is in force while the next transaction has begun: some may have to be told."""

    number: int
    partitions: list[Place]
    offsets: list[OffsetsAdded]
    holds: list[HoldsAdded]


class Expired(msgspec.Struct, frozen=True, tag="x", array_like=True, kw_only=True):
    """The producer was not heard of for too long."""


class TxRestored(msgspec.Struct, frozen=True, tag="r", array_like=True, kw_only=True):
    """The whole state, in the place of all that led to it."""

    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    number: int
    begun_at_ms: int
    partitions: list[Place]
    offsets: list[OffsetsAdded]
    holds: list[HoldsAdded]
    token: str
    pending_token: str
    is_detached: bool = False
    adopted: list[Child] = []
    ends: list[tuple[str, int, int]] = []
    unfinished: list[Ending] = []
    renews: tuple[int, int] | None = None


Event = (
    Initialised
    | TxBegun
    | PartitionsAdded
    | OffsetsAdded
    | HoldsAdded
    | Detached
    | Adopted
    | CommitPrepared
    | AbortPrepared
    | TxCompleted
    | Expired
    | TxRestored
)


class Told(msgspec.Struct, frozen=True):
    """The outcome was announced everywhere. A load announces it again."""


class Confirmed(msgspec.Struct, frozen=True):
    """Everything of the decided commit is durable: it is in force. A load looks for itself."""


class Closing(msgspec.Struct, frozen=True):
    """A newer life is about to begin: this one is over, stored or not."""


class AdoptedBy(msgspec.Struct, frozen=True):
    """Another transaction decides about this one; none if ``name`` is empty.

    Its own event says so, and a load finds it there.
    """

    name: str


Notice = Told | Confirmed | Closing | AdoptedBy
"""What is applied like an event and never stored."""
