"""Which task reads what: whole partitions, or even ranges of offsets where that is asked for.

Shape: calculator. A partition stays in one task, because the order of its rows is that of their
keys, and tasks run side by side: cut in two, it would reach a sink in any order. Only ``tasks_min``
and ``rows_per_task_max`` cut. A task costs some milliseconds whatever it does, so small partitions
share one. The same ranges always give the same plan.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from goqueue.spark.connector.option_places import Offsets

TASK_ROWS_MIN: Final = 25_000
"""Below this many rows, partitions share a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Some offsets of a partition, half-open."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def rows(self) -> int:
        """Return how many offsets there are; no more rows than that."""
        return self.end_offset - self.start_offset


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return what lies between two sets of offsets, by topic and partition.

    An end before its start is that of a log that began anew: then everything before it is new.
    """
    ranges: list[OffsetRange] = []
    for topic, parts in sorted(end.items()):
        for partition, end_offset in sorted(parts.items()):
            start_offset = start.get(topic, {}).get(partition, 0)
            if end_offset != start_offset:
                ranges.append(
                    OffsetRange(
                        topic=topic,
                        partition=partition,
                        start_offset=0 if end_offset < start_offset else start_offset,
                        end_offset=end_offset,
                    )
                )
    return [one for one in ranges if one.rows]


def share_out(
    ranges: Sequence[OffsetRange], *, tasks_min: int = 1, rows_per_task_max: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """Give out the ranges of partitions: whole ones, unless more or smaller tasks are asked for."""
    if not ranges:
        return []
    rows = sum(one.rows for one in ranges)
    rows_max = rows if rows_per_task_max is None else rows_per_task_max
    if tasks_min > len(ranges) or any(one.rows > rows_max for one in ranges):
        count = max(
            tasks_min, _ceiling(rows, rows_max), min(len(ranges), _ceiling(rows, TASK_ROWS_MIN))
        )
        return list(_deal(ranges, rows, min(count, rows)))
    count = max(tasks_min, min(len(ranges), _ceiling(rows, TASK_ROWS_MIN)))
    tasks = _gather(ranges, count)
    if any(sum(one.rows for one in task) > rows_max for task in tasks):
        return [(one,) for one in ranges]
    return tasks


def _gather(ranges: Sequence[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """Put whole ranges into so many tasks: the largest first, each where there is least."""
    hands: list[list[OffsetRange]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for one in sorted(ranges, key=lambda one: -one.rows):
        load, number = loads[0]
        hands[number].append(one)
        heapq.heapreplace(loads, (load + one.rows, number))
    return [tuple(sorted(hand, key=lambda one: (one.topic, one.partition))) for hand in hands]


def _deal(
    ranges: Sequence[OffsetRange], rows: int, count: int
) -> Iterator[tuple[OffsetRange, ...]]:
    """Cut ranges and put them together: all tasks have as many offsets, give or take one."""
    hand: list[OffsetRange] = []
    dealt = 0
    task = 1
    for one in ranges:
        start = one.start_offset
        while start < one.end_offset:
            # Where this task ends in the line of all rows: computed anew, so nothing adds up.
            stop = min(one.end_offset, start + rows * task // count - dealt)
            hand.append(
                OffsetRange(
                    topic=one.topic,
                    partition=one.partition,
                    start_offset=start,
                    end_offset=stop,
                )
            )
            dealt += stop - start
            start = stop
            if dealt == rows * task // count:
                yield tuple(hand)
                hand = []
                task += 1


def _ceiling(rows: int, size: int) -> int:
    return -(-rows // size)


def admit(start: Offsets, latest: Offsets, *, rows_max: int | None) -> Offsets:
    """Return how far the next micro-batch goes: each partition a share of what it has behind it."""
    if rows_max is None:
        return latest
    total = rows_between(start, latest)
    if total <= rows_max:
        return latest
    end: Offsets = {topic: dict(parts) for topic, parts in latest.items()}
    for one in ranges_between(start, latest):
        # At least one, so that a small partition beside a large one gets on.
        share = max(one.rows * rows_max // total, 1)
        end[one.topic][one.partition] = one.start_offset + share
    return end


def rows_between(start: Offsets, end: Offsets) -> int:
    """Return how many offsets lie between."""
    return sum(one.rows for one in ranges_between(start, end))


# Offsets as Spark keeps them in its checkpoint: Kafka's shape, partitions as text.


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets as a checkpoint has them."""
    return {
        topic: {str(partition): offset for partition, offset in sorted(parts.items())}
        for topic, parts in sorted(offsets.items())
    }


def from_json(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets of a checkpoint."""
    return {
        topic: {int(partition): int(offset) for partition, offset in parts.items()}
        for topic, parts in found.items()
    }
