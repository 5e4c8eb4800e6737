"""Moves of replicas as JSON: what is asked for, and what is answered.

Shape: codec. How far they are is worked out in ``wire/http/reassignment.py``.
"""

from typing import Annotated, Literal

import msgspec

Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class MovedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a reassignment, as it was asked for."""

    topic: str
    partition: int
    old_replicas: tuple[str, ...]
    new_replicas: tuple[str, ...]


class MoveStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far one partition is."""

    topic: str
    partition: int
    state: str
    leader_offset: int
    replica_offsets: dict[str, int]
    catchup_percent: float
    bytes_transferred: int
    started_at: str = ""
    completed_at: str = ""
    error: str = ""


class ReassignmentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    partitions: list[MovedPartition]
    throttle_bytes_per_sec: int
    timeout_per_partition_sec: int


class ReassignmentStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of ``GET /admin/reassignment/{id}``."""

    id: str
    state: str
    request: ReassignmentRequest
    progress: dict[str, MoveStatus]
    started_at: str
    completed_at: str = ""
    error: str = ""


class ReassignmentList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``GET /admin/reassignment``."""

    count: int
    reassignments: list[ReassignmentStatus]


class MoveAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Where the replicas of a partition shall be; ``old_replicas``, if given, must be as it is."""

    topic: str
    partition: int
    new_replicas: list[str]
    old_replicas: list[str] = []


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of ``POST /admin/reassignment``; zero stands for a default."""

    partitions: list[MoveAsked]
    throttle_bytes_per_sec: Natural = 0
    timeout_per_partition_sec: Natural = 0
    moves_per_node: Natural = 0


class ReassignmentStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``POST /admin/reassignment``."""

    success: Literal[True] = True
    reassignment_id: str
    message: str


class ReassignmentTurned(msgspec.Struct, frozen=True, kw_only=True):
    """A reassignment was paused, resumed or cancelled."""

    success: Literal[True] = True
    message: str


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of ``POST /admin/reassignment/plan``: empty some nodes, or even out all of them."""

    drain: list[str] = []
    is_even: bool = True
    throttle_bytes_per_sec: Natural = 0
    moves_max: Natural = 0


class PlannedPart(msgspec.Struct, frozen=True, kw_only=True):
    """One move of a plan."""

    topic: str
    partition: int
    old_replicas: tuple[str, ...]
    new_replicas: tuple[str, ...]
    bytes: int


class PlanSkew(msgspec.Struct, frozen=True, kw_only=True):
    """The most replicas, and leaders, that one node has beyond the one with the least."""

    replicas: int
    leaders: int


class MovesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan would move, and what it would gain; its ``partitions`` can be started as is."""

    partitions: list[PlannedPart]
    total_bytes: int
    duration_sec: float
    skew_before: PlanSkew
    skew_after: PlanSkew
    is_whole: bool
    stuck_replicas: int
