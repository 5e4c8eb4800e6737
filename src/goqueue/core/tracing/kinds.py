"""What can happen to a message, in the order of its life, and what it makes of its trace.

Shape: codec.
"""

from enum import Enum
from typing import Final

PUBLISHED: Final = "publish"
"""Received, partitioned and persisted in one note: three spans that nothing comes between."""
PUBLISHED_SPANS: Final = 3
RECEIVED: Final = "publish.received"
PARTITIONED: Final = "publish.partitioned"
PERSISTED: Final = "publish.persisted"
SCHEDULED: Final = "delay.scheduled"
RESCHEDULED: Final = "delay.rescheduled"
FIRED: Final = "delay.fired"
CANCELED: Final = "delay.canceled"
FETCHED: Final = "consume.fetched"
REDELIVERED: Final = "consume.redelivered"
EXTENDED: Final = "visibility.extended"
HELD: Final = "consume.held"
ACKED: Final = "consume.acked"
NACKED: Final = "consume.nacked"
RELEASED: Final = "consume.released"
VISIBILITY_EXPIRED: Final = "visibility.expired"
REJECTED: Final = "consume.rejected"
EXPIRED: Final = "message.expired"
ROUTED: Final = "dlq.routed"
REDRIVEN: Final = "dlq.redriven"

KINDS: Final = (
    RECEIVED, PARTITIONED, PERSISTED, SCHEDULED, RESCHEDULED, FIRED, CANCELED, FETCHED,
    REDELIVERED, EXTENDED, HELD, ACKED, NACKED, RELEASED, VISIBILITY_EXPIRED, REJECTED, EXPIRED,
    ROUTED, REDRIVEN,
)  # fmt: skip
RANKS: Final = {kind: rank for rank, kind in enumerate(KINDS)}
"""Where times are equal, this is the order."""

BEGINNINGS: Final = frozenset({RECEIVED, ROUTED, REDRIVEN})
"""The first span of a message at its place; its parent is the sender's span, if there is one."""
DELIVERIES: Final = frozenset({FETCHED, REDELIVERED})

IN_PROGRESS: Final = "in_progress"
COMPLETED: Final = "completed"
FAILED: Final = "failed"
RETRYING: Final = "retrying"
DELAYED: Final = "delayed"
PAST: Final = "expired"
STATUSES: Final = (IN_PROGRESS, COMPLETED, FAILED, RETRYING, DELAYED, PAST)

STATUS_BY_KIND: Final = {
    **dict.fromkeys(KINDS, IN_PROGRESS),
    ACKED: COMPLETED,
    NACKED: RETRYING,
    VISIBILITY_EXPIRED: RETRYING,
    REJECTED: FAILED,
    ROUTED: FAILED,
    SCHEDULED: DELAYED,
    RESCHEDULED: DELAYED,
    CANCELED: FAILED,
    EXPIRED: PAST,
}
"""The status of a trace whose last event is this one."""
QUIET: Final = frozenset({PARTITIONED, PERSISTED, EXTENDED, HELD})
"""Events that leave the status as it was."""


class Parent(Enum):
    """Which span another one belongs to."""

    CALLER = "caller"
    ROOT = "root"
    LEASE = "lease"


_OF_LEASES: Final = frozenset(
    {EXTENDED, HELD, ACKED, NACKED, RELEASED, VISIBILITY_EXPIRED, REJECTED}
)


def parent_of(kind: str) -> Parent:
    """Return what an event happens under."""
    if kind in BEGINNINGS:
        return Parent.CALLER
    return Parent.LEASE if kind in _OF_LEASES else Parent.ROOT
