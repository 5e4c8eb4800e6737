"""The states of a node, of a moving replica set and of a reassignment, and the ways between them.

Shape: codec.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class NodeStatus(StrEnum):
    """What the cluster allows a node to do."""

    FENCED = "fenced"
    """Registered and not heard of, or not yet: it leads nothing and is in no set of replicas."""
    ALIVE = "alive"
    LEAVING = "leaving"
    """It stays in sync while its leaderships move away, and gets no new ones."""


class NodeStep(StrEnum):
    """What can happen to a node."""

    REGISTERED = "registered"
    UNFENCED = "unfenced"
    FENCED = "fenced"
    LEAVE_BEGUN = "leave_begun"


NODE_TRANSITIONS: Final[Mapping[NodeStatus, Mapping[NodeStep, NodeStatus]]] = {
    NodeStatus.FENCED: {
        NodeStep.REGISTERED: NodeStatus.FENCED,
        NodeStep.UNFENCED: NodeStatus.ALIVE,
    },
    NodeStatus.ALIVE: {
        NodeStep.REGISTERED: NodeStatus.FENCED,
        NodeStep.LEAVE_BEGUN: NodeStatus.LEAVING,
        NodeStep.FENCED: NodeStatus.FENCED,
    },
    NodeStatus.LEAVING: {
        NodeStep.REGISTERED: NodeStatus.FENCED,
        NodeStep.FENCED: NodeStatus.FENCED,
    },
}


class MoveState(StrEnum):
    """How far the replicas of one partition are on their way."""

    PENDING = "pending"
    CATCHING_UP = "catching_up"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


MOVE_TRANSITIONS: Final[Mapping[MoveState, frozenset[MoveState]]] = {
    MoveState.PENDING: frozenset(
        {MoveState.CATCHING_UP, MoveState.COMPLETED, MoveState.FAILED, MoveState.CANCELED}
    ),
    MoveState.CATCHING_UP: frozenset({MoveState.COMPLETED, MoveState.FAILED, MoveState.CANCELED}),
    MoveState.COMPLETED: frozenset(),
    MoveState.FAILED: frozenset(),
    MoveState.CANCELED: frozenset(),
}

MOVES_OPEN: Final = frozenset({MoveState.PENDING, MoveState.CATCHING_UP})
"""States in which a move is not over."""


class ReassignmentState(StrEnum):
    """How far a reassignment is."""

    IN_PROGRESS = "in_progress"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


_ENDS: Final = frozenset(
    {ReassignmentState.COMPLETED, ReassignmentState.FAILED, ReassignmentState.CANCELED}
)
REASSIGNMENT_TRANSITIONS: Final[Mapping[ReassignmentState, frozenset[ReassignmentState]]] = {
    ReassignmentState.IN_PROGRESS: frozenset({ReassignmentState.PAUSED, *_ENDS}),
    ReassignmentState.PAUSED: frozenset({ReassignmentState.IN_PROGRESS, *_ENDS}),
    ReassignmentState.COMPLETED: frozenset(),
    ReassignmentState.FAILED: frozenset(),
    ReassignmentState.CANCELED: frozenset(),
}

REASSIGNMENTS_OPEN: Final = frozenset({ReassignmentState.IN_PROGRESS, ReassignmentState.PAUSED})
"""States in which a reassignment is not over."""


def node_after(status: NodeStatus, step: NodeStep) -> NodeStatus:
    """Return the status of a node after a step; one that the table lacks is a bug of ours."""
    ways = NODE_TRANSITIONS[status]
    assert step in ways, f"{step} in status {status}"
    return ways[step]


def move_after(state: MoveState, target: MoveState) -> MoveState:
    """Return the target if a move may get there."""
    assert target in MOVE_TRANSITIONS[state], f"{target} after {state}"
    return target


def reassignment_after(state: ReassignmentState, target: ReassignmentState) -> ReassignmentState:
    """Return the target if a reassignment may get there."""
    assert target in REASSIGNMENT_TRANSITIONS[state], f"{target} after {state}"
    return target
