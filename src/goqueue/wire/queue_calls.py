"""The headers of the queue's requests and replies: leasing messages and settling them.

A set of offsets travels as runs, ``[start, end, start, end, …]``, half-open; where they would be
many, packed (see ``core/delivery/runs.py``).
"""

from typing import Annotated

import msgspec

from goqueue.base.limits import (
    EXTENSION_MS_MAX,
    FETCH_BYTES_MAX,
    FETCH_WAIT_MS_MAX,
    IN_FLIGHT_MAX,
    POLL_MESSAGES_MAX,
    RETRY_DELAY_MS_MAX,
    SETTLE_PARTS_MAX,
    SETTLE_RUNS_MAX,
)
from goqueue.wire.calls import Call, Failure, Name, Natural, Number, Text

Member = Annotated[str, msgspec.Meta(max_length=300)]
Nonce = Annotated[int, msgspec.Meta(ge=0)]
Runs = Annotated[list[Natural], msgspec.Meta(max_length=SETTLE_RUNS_MAX)]
Packed = Annotated[bytes, msgspec.Meta(max_length=8 + 4 * IN_FLIGHT_MAX)]

ACK = "ack"
NACK = "nack"
REJECT = "reject"
EXTEND = "extend"
RELEASE = "release"
VERBS = (ACK, NACK, REJECT, EXTEND, RELEASE)


class Poll(Call, frozen=True):
    """Lease messages that are ready, waiting a while for them."""

    group: Name
    member: Member
    generation: Number
    limit: Annotated[int, msgspec.Meta(ge=1, le=POLL_MESSAGES_MAX)]
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=FETCH_BYTES_MAX)]
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=FETCH_WAIT_MS_MAX)]


class PolledPart(Call, frozen=True):
    """Messages of one partition under one lease.

    ``size`` payload bytes are their frames. Frames may hold other messages, too: those in ``order``
    are leased, and are to be handed out in that order. ``failures`` are pairs of an offset and how
    often its delivery failed before; all others are delivered for the first time. Where
    ``gathered`` has offsets, the last frame is a batch of just those messages. Those in ``traced``
    get a header ``traceparent`` that is made of ``tag`` and their offset.
    """

    topic: str
    partition: int
    size: int
    nonce: int
    order: list[int] | bytes
    failures: list[tuple[int, int]] = msgspec.field(default_factory=list)
    gathered: list[int] | bytes = b""
    traced: list[int] | bytes = b""
    tag: int = 0


class Polled(Call, frozen=True):
    """The outcome of a poll.

    ``generation`` is the group's now: another one than asked with means that assignments have
    changed; ask for them with a heartbeat.
    """

    generation: int
    lease_ms: int
    parts: list[PolledPart]
    settled: "list[SettledPart]" = msgspec.field(default_factory=list)
    """What became of the parts of a ``Next``."""


class SettlePart(Call, frozen=True):
    """Messages held under one lease, and what is to become of them."""

    topic: Name
    partition: Number
    nonce: Nonce
    verb: Text
    offsets: Runs | Packed
    reason: Text = ""
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=RETRY_DELAY_MS_MAX)] | None = None
    extension_ms: Annotated[int, msgspec.Meta(ge=1, le=EXTENSION_MS_MAX)] | None = None


class Settle(Call, frozen=True):
    """Ack, nack, reject, extend or release messages, many at once."""

    group: Name
    member: Member
    parts: Annotated[list[SettlePart], msgspec.Meta(max_length=SETTLE_PARTS_MAX, min_length=1)]


class Next(Call, frozen=True):
    """Settle messages and lease the next ones, in one request.

    It waits for messages only where it settles none.
    """

    group: Name
    member: Member
    generation: Number
    limit: Annotated[int, msgspec.Meta(ge=1, le=POLL_MESSAGES_MAX)]
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=FETCH_BYTES_MAX)]
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=FETCH_WAIT_MS_MAX)]
    parts: Annotated[list[SettlePart], msgspec.Meta(max_length=SETTLE_PARTS_MAX)]


class RefusedOffset(Call, frozen=True):
    """A message that was not settled, and why."""

    offset: int
    failure: Failure


class SettledPart(Call, frozen=True):
    """What became of one part: runs that will be tried again, runs that are dead letters now."""

    refused: list[RefusedOffset] = msgspec.field(default_factory=list)
    retried: list[int] = msgspec.field(default_factory=list)
    doomed: list[int] = msgspec.field(default_factory=list)


class Settled(Call, frozen=True):
    """The outcome of a settlement, part by part."""

    parts: list[SettledPart]


class OffsetOf(Call, frozen=True):
    """An offset of one partition."""

    topic: Name
    partition: Number
    offset: Natural


class CommitOffsets(Call, frozen=True):
    """Settle everything before the offsets, as its owner; without a generation none is compared."""

    group: Name
    member: Member
    generation: Number | None
    offsets: Annotated[list[OffsetOf], msgspec.Meta(max_length=SETTLE_PARTS_MAX)]


class GroupCall(Call, frozen=True):
    """Name a group."""

    group: Name


class Progress(Call, frozen=True):
    """How far a group is in one partition. ``lag`` counts messages that are not settled."""

    topic: str
    partition: int
    committed_offset: int
    end_offset: int
    lag: int
    in_flight: int
    waiting: int
    delayed: int
    dead: int
    lag_ms: int


class GroupProgress(Call, frozen=True):
    """How far a group is everywhere."""

    generation: int
    parts: list[Progress]


class ResetOffsets(Call, frozen=True):
    """Begin anew: at ``earliest``, ``latest``, a time or an offset, in some or all partitions."""

    group: Name
    topic: Name
    to: Text = "earliest"
    timestamp_us: Natural | None = None
    offset: Natural | None = None
    partitions: list[Number] | None = None


class OffsetsSet(Call, frozen=True):
    """Where a group begins anew."""

    offsets: list[OffsetOf]
