"""What happens to the messages of a partition in the hands of a group.

Shape: codec. Events are past tense, carry runs of offsets, and are what the journal keeps. Times
ending in ``_at_ms`` are of the wall clock, deadlines of the monotonic one.
"""

from typing import Annotated

import msgspec

from goqueue.core.delivery.runs import Runs, Written

ACKED = "acked"
DEAD = "dead"
EXPIRED = "expired"
CANCELLED = "cancelled"
GONE = "gone"
SKIPPED = "skipped"
OUTCOMES = (ACKED, DEAD, EXPIRED, CANCELLED, GONE, SKIPPED)
"""How a message can end. ``gone``: its bytes are no longer in the log."""

Text = Annotated[str, msgspec.Meta(max_length=1_000)]


class Leased(msgspec.Struct, frozen=True, tag="l", array_like=True, kw_only=True):
    """A member took messages and must settle them before the deadline.

    ``cursors`` tells how far each lane has been handed out; ``missed`` are those passed over
    because they are delayed, ``unread`` those that found no room in the reply.
    """

    offsets: Written
    nonce: int
    member: str
    deadline_ms: int
    lease_ms: int
    at_ms: int
    cursors: tuple[int, ...]
    missed: Runs = []
    unread: Runs = []


class Acked(msgspec.Struct, frozen=True, tag="a", array_like=True, kw_only=True):
    """A member is done with messages; where none are named, with all that its lease holds."""

    offsets: Written
    nonce: int


class Returned(msgspec.Struct, frozen=True, tag="r", array_like=True, kw_only=True):
    """Messages come back: their next attempt is due after a while.

    An attempt that is not counted was no attempt: the member gave back what it never looked at.
    """

    offsets: Runs
    nonce: int
    due_ms: int
    backoff_ms: int
    at_ms: int
    error: Text
    is_counted: bool = True


class Extended(msgspec.Struct, frozen=True, tag="x", array_like=True, kw_only=True):
    """A member needs more time."""

    offsets: Runs
    nonce: int
    deadline_ms: int
    lease_ms: int


class Doomed(msgspec.Struct, frozen=True, tag="d", array_like=True, kw_only=True):
    """Messages have failed for good: they belong among the dead letters."""

    offsets: Runs
    nonce: int
    reason: Text
    error: Text
    at_ms: int


class MoveBegun(msgspec.Struct, frozen=True, tag="m", array_like=True, kw_only=True):
    """Messages are being written elsewhere; a restart looks for them there from an offset on."""

    offsets: Runs
    topic: str
    partition: int
    from_offset: int
    reason: Text = ""


class Moved(msgspec.Struct, frozen=True, tag="v", array_like=True, kw_only=True):
    """Messages are durably elsewhere."""

    offsets: Runs


class Spared(msgspec.Struct, frozen=True, tag="b", array_like=True, kw_only=True):
    """Doomed messages wait for another attempt: there is no place they could be moved to."""

    offsets: Runs
    due_ms: int
    backoff_ms: int


class Dropped(msgspec.Struct, frozen=True, tag="p", array_like=True, kw_only=True):
    """Messages will not be delivered any more."""

    offsets: Runs
    outcome: str


class Held(msgspec.Struct, frozen=True, tag="h", array_like=True, kw_only=True):
    """Messages under a lease are settled by a transaction, if that is committed."""

    offsets: Runs
    nonce: int
    transaction: int


class HoldEnded(msgspec.Struct, frozen=True, tag="e", array_like=True, kw_only=True):
    """A transaction ended: what it held is settled, or ready again."""

    transaction: int
    is_commit: bool


class Reset(msgspec.Struct, frozen=True, tag="s", array_like=True, kw_only=True):
    """The group begins anew at an offset, forgetting everything it knew of the partition."""

    offset: int


class LeaseKept(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A live lease, in a snapshot."""

    nonce: int
    member: str
    offsets: Written
    deadline_ms: int
    lease_ms: int


class AttemptKept(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One failed delivery."""

    at_ms: int
    member: str
    error: Text


class WaitKept(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A message that waits for its next attempt, in a snapshot."""

    offset: int
    due_ms: int
    backoff_ms: int


class HistoryKept(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The failed deliveries of one message, in a snapshot; ``count`` may exceed those listed.

    An attempt is its time, and the places of its member and its error among the texts.
    """

    offset: int
    count: int
    attempts: list[tuple[int, int, int]]


class DoomKept(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A message on its way elsewhere, in a snapshot."""

    offset: int
    reason: str
    topic: str = ""
    partition: int = 0
    from_offset: int = -1


class HoldKept(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Messages a transaction holds, in a snapshot."""

    transaction: int
    offsets: Runs


class Restored(msgspec.Struct, frozen=True, tag="o", array_like=True, kw_only=True):
    """The whole state, in the place of all that led to it."""

    origin: int
    committed: int
    done: bytes
    cursors: tuple[int, ...]
    outcomes: list[int]
    leases: list[LeaseKept]
    waits: list[WaitKept]
    history: list[HistoryKept]
    texts: list[str]
    dooms: list[DoomKept]
    holds: list[HoldKept] = []


Event = (
    Leased
    | Acked
    | Returned
    | Extended
    | Doomed
    | MoveBegun
    | Moved
    | Spared
    | Dropped
    | Held
    | HoldEnded
    | Reset
    | Restored
)
