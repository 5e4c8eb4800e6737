"""How many messages a range of offsets really holds.

Offsets are also taken by the ends of transactions, by what compaction has removed, and by messages
nobody will ever get: cancelled, or of an aborted transaction. One of an open transaction is not
there yet. One that is delayed is. Counted by the cardinalities of sets of offsets.
"""

from pyroaring import BitMap64

from goqueue.runtime.log.leadership import led
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.visibility import PartitionVisibility


def count_in_topic(topic: Topic) -> int:
    """Return how many messages this node leads of a topic: alone, all there are."""
    return sum(map(count_messages, led(topic.partitions)))


def count_messages(partition: Partition) -> int:
    """Return how many messages a partition holds."""
    return count_between(partition.queue, partition.log.start_offset, partition.visible_offset)


def count_between(
    queue: PartitionVisibility, start: int, end: int, *, without: BitMap64 | None = None
) -> int:
    """Return how many messages a half-open range holds, leaving out some offsets."""
    if start >= end:
        return 0
    absent = _count_absent(queue, start, end)
    left_out = without.range_cardinality(start, end) if without else 0
    count = end - start - absent - left_out
    if without and absent and left_out:
        count += _count_absent_in(queue, _between(without, start, end))
    return count


def absent_between(queue: PartitionVisibility, start: int, end: int) -> BitMap64:
    """Return the offsets of a half-open range where there is no message, or not yet."""
    found = BitMap64()
    for offsets in (queue.empty, queue.cancelled, queue.tx.aborted, queue.tx.uncommitted):
        if offsets and start < end and offsets.range_cardinality(start, end):
            found |= _between(offsets, start, end)
    return found


def _count_absent(queue: PartitionVisibility, start: int, end: int) -> int:
    """Return at how many offsets of a range there is no message, or not yet.

    Sets are large and seldom overlap: only a cancelled message may be one of a transaction, too.
    """
    apart = (queue.empty, queue.tx.aborted, queue.tx.uncommitted)
    count = sum([one.range_cardinality(start, end) for one in apart if one])
    if queue.cancelled and queue.cancelled.range_cardinality(start, end):
        cancelled = _between(queue.cancelled, start, end)
        count += len(cancelled)
        count -= sum([one.intersection_cardinality(cancelled) for one in apart if one])
    return count


def _count_absent_in(queue: PartitionVisibility, offsets: BitMap64) -> int:
    """Return at how many of some offsets there is no message, or not yet."""
    apart = (queue.empty, queue.tx.aborted, queue.tx.uncommitted)
    rest = offsets - queue.cancelled if queue.cancelled else offsets
    count = len(offsets) - len(rest)
    return count + sum([one.intersection_cardinality(rest) for one in apart if one])


def _between(offsets: BitMap64, start: int, end: int) -> BitMap64:
    found = BitMap64()
    found.add_range(start, end)
    return found & offsets
