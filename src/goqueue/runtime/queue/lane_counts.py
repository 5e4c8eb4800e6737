"""What is still to be delivered of a partition, by priority."""

from collections.abc import Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.limits import PRIORITIES
from goqueue.core.record.message import Priority
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.message_counts import absent_between, count_messages
from goqueue.runtime.queue.hosted_ledger import HostedLedger
from goqueue.runtime.queue.ledgers import Ledgers


class LanePending(NamedTuple):
    """The messages of one lane that some group has not settled."""

    messages: int
    oldest: Offset | None


def ledgers_of(ledgers: Ledgers, partition: Partition) -> list[HostedLedger]:
    """Return how far each group is in a partition."""
    return [hosted for hosted in ledgers if hosted.partition is partition]


def pending_lanes(partition: Partition, ledgers: Sequence[HostedLedger]) -> list[LanePending]:
    """Return what is pending by priority, most urgent first."""
    pending = _unsettled(partition, ledgers)
    lanes: list[LanePending] = []
    urgent = [lane for lane in range(PRIORITIES) if lane != Priority.NORMAL]
    rest = pending
    for lane in urgent:
        here = pending & partition.queue.lanes[lane]
        rest = rest - here
        lanes.append(_count(here))
    lanes.insert(Priority.NORMAL, _count(rest))
    return lanes


def total_lanes(partition: Partition) -> list[int]:
    """Return how many messages of the log there are by priority, most urgent first."""
    start, end = partition.log.start_offset, partition.visible_offset
    absent = absent_between(partition.queue, start, end)
    counts = [len(lane - absent) for lane in partition.queue.lanes]
    counts[Priority.NORMAL] = count_messages(partition) - sum(counts)
    return counts


def _count(offsets: BitMap64) -> LanePending:
    return LanePending(len(offsets), Offset(offsets.min()) if offsets else None)


def _unsettled(partition: Partition, ledgers: Sequence[HostedLedger]) -> BitMap64:
    """Return what some group has not settled; without groups, everything."""
    start, end = partition.log.start_offset, partition.visible_offset
    begin = max(start, min((one.ledger.committed for one in ledgers), default=start))
    window = BitMap64()
    if begin >= end:
        return window
    window.add_range(begin, end)
    window -= absent_between(partition.queue, begin, end)
    settled: BitMap64 | None = None
    for one in ledgers:
        done = one.ledger.settled_between(begin, end)
        settled = done if settled is None else settled & done
    return window if settled is None else window - settled
