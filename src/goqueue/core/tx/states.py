"""The states of a transactional producer, and the only ways between them.

Shape: codec.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from goqueue.core.tx import events


class TxState(StrEnum):
    """Where a producer's latest transaction stands."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    """Not heard of for so long that its identity is free to go."""


_IDLE: Final[Mapping[type[events.Event], TxState]] = {
    events.Initialised: TxState.EMPTY,
    events.TxBegun: TxState.ONGOING,
    events.Expired: TxState.DEAD,
}
TRANSITIONS: Final[Mapping[TxState, Mapping[type[events.Event], TxState]]] = {
    TxState.EMPTY: _IDLE,
    TxState.COMPLETE_COMMIT: _IDLE,
    TxState.COMPLETE_ABORT: _IDLE,
    TxState.ONGOING: {
        events.PartitionsAdded: TxState.ONGOING,
        events.OffsetsAdded: TxState.ONGOING,
        events.HoldsAdded: TxState.ONGOING,
        events.Detached: TxState.ONGOING,
        events.Adopted: TxState.ONGOING,
        events.CommitPrepared: TxState.PREPARE_COMMIT,
        events.AbortPrepared: TxState.PREPARE_ABORT,
    },
    TxState.PREPARE_COMMIT: {
        events.TxCompleted: TxState.COMPLETE_COMMIT,
        # Everybody was told, and only the disks have not confirmed it yet.
        events.TxBegun: TxState.ONGOING,
        # Not everything of it reached the disk, and nobody was told.
        events.AbortPrepared: TxState.PREPARE_ABORT,
    },
    TxState.PREPARE_ABORT: {events.TxCompleted: TxState.COMPLETE_ABORT},
    TxState.DEAD: {events.Initialised: TxState.EMPTY},
}

IDLE: Final = frozenset({TxState.EMPTY, TxState.COMPLETE_COMMIT, TxState.COMPLETE_ABORT})
"""States in which a new transaction may begin."""
PREPARED: Final = frozenset({TxState.PREPARE_COMMIT, TxState.PREPARE_ABORT})
"""States in which the outcome is decided and being carried out."""


def after(state: TxState, event: events.Event) -> TxState:
    """Return the state behind an event; one the table does not have is a bug of ours."""
    ways = TRANSITIONS[state]
    assert type(event) in ways, f"{type(event).__name__} in state {state}"
    return ways[type(event)]
