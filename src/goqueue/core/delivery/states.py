"""The states of a message for one group, and the only ways between them.

Shape: codec. The ledger keeps states as sets of offsets; this table says which events may move an
offset from which set, and the ledger's tests hold it to that.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from goqueue.core.delivery import events


class DeliveryState(Enum):
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


TRANSITIONS: Final[Mapping[DeliveryState, Mapping[type[events.Event], DeliveryState]]] = {
    DeliveryState.READY: {
        events.Leased: DeliveryState.LEASED,
        events.Dropped: DeliveryState.DONE,
        events.MoveBegun: DeliveryState.DOOMED,
    },
    DeliveryState.LEASED: {
        events.Acked: DeliveryState.DONE,
        events.Returned: DeliveryState.WAITING,
        events.Doomed: DeliveryState.DOOMED,
        events.Extended: DeliveryState.LEASED,
        events.Held: DeliveryState.HELD,
        events.Dropped: DeliveryState.DONE,
    },
    DeliveryState.WAITING: {
        events.Dropped: DeliveryState.DONE,
        events.Doomed: DeliveryState.DOOMED,
    },
    DeliveryState.DOOMED: {
        events.MoveBegun: DeliveryState.DOOMED,
        events.Moved: DeliveryState.DONE,
        events.Spared: DeliveryState.WAITING,
        events.Dropped: DeliveryState.DONE,
    },
    DeliveryState.HELD: {events.HoldEnded: DeliveryState.DONE, events.Dropped: DeliveryState.DONE},
    DeliveryState.DONE: {},
}
"""A waiting message becomes ready when it is due, a held one when its transaction is aborted."""
