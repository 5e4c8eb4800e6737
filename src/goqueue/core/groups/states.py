"""The states of a group and of a rebalance as a member sees it: one table, no other file assigns.

Shape: calculator.
"""

from enum import StrEnum
from typing import Final

from goqueue.core.groups.events import (
    Counted,
    Deleted,
    Emptied,
    Event,
    Gone,
    Joined,
    Opened,
    RebalanceBegun,
    RebalanceCompleted,
    Revoked,
)


class GroupState(StrEnum):
    """Where a group stands."""

    EMPTY = "Empty"
    STABLE = "Stable"
    REBALANCING = "Rebalancing"
    DEAD = "Dead"


class Phase(StrEnum):
    """What a rebalance asks of a member, or of the group as a whole."""

    NONE = "none"
    PENDING_REVOKE = "pending_revoke"
    PENDING_ASSIGN = "pending_assign"
    COMPLETE = "complete"


TRANSITIONS: Final[dict[GroupState, dict[type[Event], GroupState]]] = {
    GroupState.EMPTY: {
        Opened: GroupState.EMPTY,
        Joined: GroupState.EMPTY,
        Counted: GroupState.EMPTY,
        Emptied: GroupState.EMPTY,
        RebalanceBegun: GroupState.REBALANCING,
        Deleted: GroupState.DEAD,
    },
    GroupState.REBALANCING: {
        Joined: GroupState.REBALANCING,
        Gone: GroupState.REBALANCING,
        Counted: GroupState.REBALANCING,
        RebalanceBegun: GroupState.REBALANCING,
        Revoked: GroupState.REBALANCING,
        RebalanceCompleted: GroupState.STABLE,
        Emptied: GroupState.EMPTY,
        Deleted: GroupState.DEAD,
    },
    GroupState.STABLE: {
        Joined: GroupState.STABLE,
        Gone: GroupState.STABLE,
        Counted: GroupState.STABLE,
        RebalanceBegun: GroupState.REBALANCING,
        Emptied: GroupState.EMPTY,
        Deleted: GroupState.DEAD,
    },
    GroupState.DEAD: {},
}


def next_state(state: GroupState, event: Event) -> GroupState:
    """Return where an event leads; one that cannot happen here is our bug."""
    following = TRANSITIONS[state].get(type(event))
    assert following is not None, f"{type(event).__name__} cannot happen to a group that is {state}"
    return following
