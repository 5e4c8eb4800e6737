"""The states of a transactional producer, and the only ways between them.

Shape: codec.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from goqueue.core.tx import events


class State(StrEnum):
    """Where a producer's latest transaction stands."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    """Not heard of for so long that its identity is free to go."""


_IDLE: Final[Mapping[type[events.Event], State]] = {
    events.Initialised: State.EMPTY,
    events.Begun: State.ONGOING,
    events.Expired: State.DEAD,
}
TRANSITIONS: Final[Mapping[State, Mapping[type[events.Event], State]]] = {
    State.EMPTY: _IDLE,
    State.COMPLETE_COMMIT: _IDLE,
    State.COMPLETE_ABORT: _IDLE,
    State.ONGOING: {
        events.PartitionsAdded: State.ONGOING,
        events.OffsetsAdded: State.ONGOING,
        events.HoldsAdded: State.ONGOING,
        events.Detached: State.ONGOING,
        events.Adopted: State.ONGOING,
        events.CommitPrepared: State.PREPARE_COMMIT,
        events.AbortPrepared: State.PREPARE_ABORT,
    },
    State.PREPARE_COMMIT: {
        events.Completed: State.COMPLETE_COMMIT,
        # Everybody was told, and only the disks have not confirmed it yet.
        events.Begun: State.ONGOING,
        # Not everything of it reached the disk, and nobody was told.
        events.AbortPrepared: State.PREPARE_ABORT,
    },
    State.PREPARE_ABORT: {events.Completed: State.COMPLETE_ABORT},
    State.DEAD: {events.Initialised: State.EMPTY},
}

IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""States in which a new transaction may begin."""
PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""States in which the outcome is decided and being carried out."""


def after(state: State, event: events.Event) -> State:
    """Return the state behind an event; one the table does not have is a bug of ours."""
    ways = TRANSITIONS[state]
    assert type(event) in ways, f"{type(event).__name__} in state {state}"
    return ways[type(event)]
