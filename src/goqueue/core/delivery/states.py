"""The states of a message for one group, and the only ways between them.

Shape: codec. The ledger keeps states as sets of offsets; this table says which events may move an
offset from which set, and the ledger's tests hold it to that.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from goqueue.core.delivery import events


class State(Enum):
    """Where a message is. Every message is in exactly one."""

    READY = "ready"
    LEASED = "leased"
    WAITING = "waiting"
    """Given back; its next attempt is a while away."""
    DOOMED = "doomed"
    """Has failed for good and is on its way to the dead letters."""
    HELD = "held"
    """Settled by a transaction that is still open."""
    DONE = "done"
    """Settled: acked, moved, expired, cancelled, skipped or no longer in the log."""


TRANSITIONS: Final[Mapping[State, Mapping[type[events.Event], State]]] = {
    State.READY: {
        events.Leased: State.LEASED,
        events.Dropped: State.DONE,
        events.MoveBegun: State.DOOMED,
    },
    State.LEASED: {
        events.Acked: State.DONE,
        events.Returned: State.WAITING,
        events.Doomed: State.DOOMED,
        events.Extended: State.LEASED,
        events.Held: State.HELD,
        events.Dropped: State.DONE,
    },
    State.WAITING: {events.Dropped: State.DONE, events.Doomed: State.DOOMED},
    State.DOOMED: {
        events.MoveBegun: State.DOOMED,
        events.Moved: State.DONE,
        events.Spared: State.WAITING,
        events.Dropped: State.DONE,
    },
    State.HELD: {events.HoldEnded: State.DONE, events.Dropped: State.DONE},
    State.DONE: {},
}
"""A waiting message becomes ready when it is due, a held one when its transaction is aborted."""
