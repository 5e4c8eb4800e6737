"""What time and the log bring to a ledger: applied like an event, and never stored.

A load works it out anew, so that a ledger that was loaded may be ahead of one that was not, and
never behind.
"""

from dataclasses import dataclass

from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.core.delivery.runs import Numbers


@dataclass(frozen=True, slots=True)
class Woken:
    """Messages have waited long enough for their next attempt."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Due:
    """Messages that could not be delivered before may be delivered now."""

    offsets: BitMap64


@dataclass(frozen=True, slots=True)
class Looked:
    """The log was looked at for keys: its messages in a half-open range, and their keys."""

    start: Offset
    end: Offset
    offsets: Numbers
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Revived:
    """The ledger was replayed: leases and waits have their whole time again."""

    again: BitMap64
    missed: BitMap64
    now_ms: int
    by_key: bool | None = None
    """Whether the messages of a key wait for one another; None leaves that as it is."""


Notice = Woken | Due | Looked | Revived
