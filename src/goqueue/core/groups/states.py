"""The states of a group and of a rebalance as a member sees it: one table, no other file assigns.

Shape: calculator.
"""

from enum import StrEnum
from typing import Final

from goqueue.core.groups.events import (
    Begun,
    Completed,
    Counted,
    Deleted,
    Emptied,
    Event,
    Gone,
    Joined,
    Opened,
    Revoked,
)


class State(StrEnum):
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


TRANSITIONS: Final[dict[State, dict[type[Event], State]]] = {
    State.EMPTY: {
        Opened: State.EMPTY,
        Joined: State.EMPTY,
        Counted: State.EMPTY,
        Emptied: State.EMPTY,
        Begun: State.REBALANCING,
        Deleted: State.DEAD,
    },
    State.REBALANCING: {
        Joined: State.REBALANCING,
        Gone: State.REBALANCING,
        Counted: State.REBALANCING,
        Begun: State.REBALANCING,
        Revoked: State.REBALANCING,
        Completed: State.STABLE,
        Emptied: State.EMPTY,
        Deleted: State.DEAD,
    },
    State.STABLE: {
        Joined: State.STABLE,
        Gone: State.STABLE,
        Counted: State.STABLE,
        Begun: State.REBALANCING,
        Emptied: State.EMPTY,
        Deleted: State.DEAD,
    },
    State.DEAD: {},
}


def next_state(state: State, event: Event) -> State:
    """Return where an event leads; one that cannot happen here is our bug."""
    following = TRANSITIONS[state].get(type(event))
    assert following is not None, f"{type(event).__name__} cannot happen to a group that is {state}"
    return following
