"""Committed offsets and lag of groups as JSON."""

from typing import Annotated, Literal

import msgspec

PartitionText = Annotated[str, msgspec.Meta(examples=["0"])]
Offset = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Offsets = dict[str, dict[PartitionText, Offset]]


class OffsetCommit(msgspec.Struct, frozen=True, kw_only=True):
    """Where a member's partitions are to be read on; everything before is settled."""

    member_id: str
    generation: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    offsets: Offsets


class OffsetsCommitted(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets are durable."""

    status: Literal["committed"] = "committed"
    group: str
    offsets: Offsets


class GroupOffsets(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a group reads on, by topic and partition."""

    group_id: str
    topics: dict[str, dict[str, int]]
    generation: int | None = None
    updated_at: str | None = None


class OffsetReset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group is to begin anew: "earliest", "latest", a time (RFC 3339) or an offset."""

    topic: str
    to: str | int
    partitions: list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]] | None = None
    dry_run: bool | None = None


class ResetPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One partition; ``old_offset`` is absent where the group had none."""

    new_offset: int
    old_offset: int | None = None


class OffsetsReset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group begins anew, or, on a dry run, would."""

    group: str
    topic: str
    dry_run: bool
    offsets: dict[str, ResetPlace]


class PartitionLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in one partition.

    ``lag`` counts what is not settled; of that, ``in_flight`` is leased, ``waiting`` waits for its
    next attempt and ``delayed`` for its time. ``dead`` counts what became dead letters.
    ``lag_seconds`` is the age of the oldest message that is not settled.
    """

    topic: str
    partition: int
    committed: int
    end: int
    lag: int
    lag_seconds: float
    in_flight: int
    waiting: int
    delayed: int
    dead: int


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is."""

    group_id: str
    generation: int
    lag: int
    lag_seconds: float
    partitions: list[PartitionLag]
