"""What a request for a log brings along, and what became of it before the disk has it."""

from collections.abc import Callable
from typing import Final, NamedTuple

from goqueue.base.errors import GoQueueError
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.published import Published


class Ticket(NamedTuple):
    """The transaction messages belong to, whose it is, and what raises when it is not open.

    It is checked right before messages are appended, for their partition.
    """

    number: int
    check: Callable[[Partition], object]
    stamp: ProducerStamp = NO_STAMP


class Appended(NamedTuple):
    """What became of each part of a request, before the disk has it, and when it came."""

    outcomes: list[Published | GoQueueError]
    started: float
    received_us: int


NO_TICKET: Final = Ticket(0, bool)
"""Of messages that belong to no transaction: there is nothing to check."""
