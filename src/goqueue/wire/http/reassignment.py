"""Reassignments of replicas as JSON.

Shape: codec. What was asked for and how far it is come from the image, the numbers from the leaders
of the moving partitions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.base.ids import NodeId, TopicId
from goqueue.base.units import SECOND_MS
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.reassignment import catchup_percent
from goqueue.core.cluster.rebalance import RebalancePlan
from goqueue.core.cluster.records import Reassignment, ReplicaMove
from goqueue.core.cluster.states import MoveState, ReassignmentState
from goqueue.wire.http.cluster import shown_time
from goqueue.wire.http.moving import (
    MovedPartition,
    MovesPlan,
    MoveStatus,
    PlannedPart,
    PlanSkew,
    ReassignmentList,
    ReassignmentRequest,
    ReassignmentStatus,
)


class MoveProgress(NamedTuple):
    """What the leader of a moving partition reports: never what the replica says of itself."""

    high_watermark_start: int
    high_watermark: int
    durable_offsets: Mapping[NodeId, int]
    copied_bytes: int = 0


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


def plan_of(plan: RebalancePlan) -> MovesPlan:
    """Return a plan as it is shown."""
    return MovesPlan(
        partitions=[
            PlannedPart(
                topic=one.topic,
                partition=one.partition,
                old_replicas=one.old,
                new_replicas=one.new,
                bytes=one.copied_bytes,
            )
            for one in plan.moves
        ],
        total_bytes=plan.copied_bytes,
        duration_sec=plan.duration_ms / SECOND_MS,
        skew_before=PlanSkew(replicas=plan.before.replicas, leaders=plan.before.leaders),
        skew_after=PlanSkew(replicas=plan.after.replicas, leaders=plan.after.leaders),
        is_whole=plan.is_whole,
        stuck_replicas=plan.stuck,
    )
