"""Reassignments of replicas as JSON.

Shape: codec. What was asked for and how far it is come from the image, the numbers from the leaders
of the moving partitions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from goqueue.base.ids import NodeId, TopicId
from goqueue.base.units import SECOND_MS
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.reassignment import catchup_percent
from goqueue.core.cluster.records import Reassignment, ReplicaMove
from goqueue.core.cluster.states import MoveState, ReassignmentState
from goqueue.wire.http.cluster import shown_time


class MoveProgress(NamedTuple):
    """What the leader of a moving partition reports: never what the replica says of itself."""

    high_watermark_start: int
    high_watermark: int
    durable_offsets: Mapping[NodeId, int]
    copied_bytes: int = 0


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


Reports = Mapping[tuple[TopicId, int], MoveProgress]


def reassignment_status(image: ClusterImage, name: str, reports: Reports) -> ReassignmentStatus:
    """Return a reassignment, its progress as the leaders report it."""
    return _reassignment(image, image.reassignment(name), reports)


def reassignment_list(image: ClusterImage, reports: Reports) -> ReassignmentList:
    """Return all reassignments that are remembered."""
    found = [_reassignment(image, one, reports) for one in image.reassignments.values()]
    return ReassignmentList(count=len(found), reassignments=found)


def _reassignment(
    image: ClusterImage, reassignment: Reassignment, reports: Reports
) -> ReassignmentStatus:
    moves = image.moves_of(reassignment.number)
    return ReassignmentStatus(
        id=reassignment.id,
        state=_state(reassignment, moves),
        request=ReassignmentRequest(
            partitions=[
                MovedPartition(
                    topic=one.topic,
                    partition=one.partition,
                    old_replicas=one.old,
                    new_replicas=one.new,
                )
                for one in moves
            ],
            throttle_bytes_per_sec=reassignment.throttle_bytes,
            timeout_per_partition_sec=reassignment.timeout_ms // SECOND_MS,
        ),
        progress={
            f"{one.topic}-{one.partition}": _progress(
                one, reports.get((one.topic_id, one.partition))
            )
            for one in moves
        },
        started_at=shown_time(reassignment.started_ms),
        completed_at=shown_time(reassignment.ended_ms),
        error=reassignment.error,
    )


def _state(reassignment: Reassignment, moves: Sequence[ReplicaMove]) -> str:
    """Return the state as the contract has it: pending until a move began."""
    states = {one.state for one in moves}
    if reassignment.state is not ReassignmentState.IN_PROGRESS:
        return reassignment.state
    if states == {MoveState.PENDING}:
        return "pending"
    return "in_progress" if MoveState.PENDING in states else "catching_up"


def _progress(move: ReplicaMove, report: MoveProgress | None) -> MoveStatus:
    arriving = [node for node in move.new if node not in move.old]
    share = _share(move, arriving, report)
    report = report or MoveProgress(0, 0, {})
    return MoveStatus(
        topic=move.topic,
        partition=move.partition,
        state=move.state,
        leader_offset=report.high_watermark,
        replica_offsets={node: report.durable_offsets.get(node, 0) for node in arriving},
        catchup_percent=share,
        bytes_transferred=report.copied_bytes,
        started_at=shown_time(move.started_ms),
        completed_at=shown_time(move.ended_ms),
        error=move.error,
    )


def _share(move: ReplicaMove, arriving: Sequence[NodeId], report: MoveProgress | None) -> float:
    """Return how far the slowest new replica is; that all are done, only the image says."""
    if move.state is MoveState.COMPLETED:
        return 100.0
    if report is None or move.state is not MoveState.CATCHING_UP:
        return 0.0
    return min(
        (
            catchup_percent(
                durable_offset=report.durable_offsets.get(node, 0),
                high_watermark_start=report.high_watermark_start,
                high_watermark=report.high_watermark,
            )
            for node in arriving
        ),
        default=0.0,
    )
