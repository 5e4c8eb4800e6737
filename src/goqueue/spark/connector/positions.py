"""Where reading begins and ends: topics chosen, words and times turned into offsets."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from goqueue.base.errors import OffsetOutOfRangeError, PartitionNotFoundError, TopicNotFoundError
from goqueue.base.units import US_PER_MS
from goqueue.client.chunk import Chunk
from goqueue.spark.connector.options import (
    EARLIEST,
    LATEST,
    TOPICS_MAX,
    Offsets,
    OptionsError,
    Position,
    ReadOptions,
)
from goqueue.spark.connector.planning import OffsetRange
from goqueue.wire.calls import OffsetsPart

Parts = dict[str, list[OffsetsPart]]
"""By topic, the range of each partition that is to be read."""


class Log(Protocol):
    """Something that has topics: a broker, or a data directory."""

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        ...

    def offsets(self, topic: str, *, at_us: int | None = None) -> list[OffsetsPart]:
        """Return the range of each partition, and where a time is in it."""
        ...

    def chunks(self, wanted: OffsetRange, *, is_loss_fatal: bool) -> Iterator[Chunk]:
        """Yield the frames of a range; what is gone is told or passed over."""
        ...


def chosen_topics(log: Log, options: ReadOptions) -> list[str]:
    """Return the topics to be read; by a pattern those that there are now."""
    if options.pattern is None:
        return list(options.topics or options.assigned or ())
    found = sorted(filter(options.wants, log.topics()))
    if len(found) > TOPICS_MAX:
        raise OptionsError(
            f"subscribePattern: {len(found)} topics match {options.pattern!a};"
            f" the limit is {TOPICS_MAX}"
        )
    return found


def chosen_parts(log: Log, options: ReadOptions, *, at_us: int | None = None) -> Parts:
    """Return the partitions to be read with their ranges."""
    parts: Parts = {}
    for topic in chosen_topics(log, options):
        try:
            found = log.offsets(topic, at_us=at_us)
        except TopicNotFoundError:
            # By a pattern nobody named it, and it went away since it was listed.
            if options.pattern is not None:
                continue
            raise
        parts[topic] = _assigned(topic, found, options.assigned)
    return parts


def _assigned(
    topic: str, found: list[OffsetsPart], assigned: Mapping[str, tuple[int, ...]] | None
) -> list[OffsetsPart]:
    if assigned is None:
        return found
    wanted = assigned[topic]
    unknown = set(wanted) - {part.partition for part in found}
    if unknown:
        raise PartitionNotFoundError(
            f"assign: {topic} has no partition {sorted(unknown)}; it has {len(found)}"
        )
    return [part for part in found if part.partition in wanted]


def starts(log: Log, options: ReadOptions, parts: Parts) -> Offsets:
    """Return the offset at which each partition begins to be read."""
    if options.start_ms is not None:
        return _at_time(log, options, options.start_ms)
    return _resolve(options.start, parts, other=EARLIEST, name="startingOffsets")


def ends(log: Log, options: ReadOptions, parts: Parts) -> Offsets:
    """Return the offset before which reading ends in each partition."""
    if options.end_ms is not None:
        found = _at_time(log, options, options.end_ms)
    else:
        found = _resolve(options.end, parts, other=LATEST, name="endingOffsets")
    for topic, offsets in found.items():
        for part in parts[topic]:
            if offsets[part.partition] > part.end_offset:
                raise OffsetOutOfRangeError(
                    f"endingOffsets: {topic}/{part.partition}: {offsets[part.partition]} is behind"
                    f" the latest, {part.end_offset}"
                )
    return found


def latest(parts: Parts) -> Offsets:
    """Return the end of each partition."""
    return _resolve(LATEST, parts, other=LATEST, name="")


def earliest(parts: Parts) -> Offsets:
    """Return the beginning of each partition."""
    return _resolve(EARLIEST, parts, other=EARLIEST, name="")


def _at_time(log: Log, options: ReadOptions, at_ms: int) -> Offsets:
    """Return the first offset at or after a time in each partition, its end if there is none."""
    return {
        topic: {one.partition: place_of(one) for one in parts}
        for topic, parts in chosen_parts(log, options, at_us=at_ms * US_PER_MS).items()
    }


def place_of(part: OffsetsPart) -> int:
    """Return where the time that was asked for is, the end if nothing before it is so late.

    It may lie in an open transaction, behind the end.
    """
    return min(part.offset, part.end_offset) if part.offset >= 0 else part.end_offset


def _resolve(position: Position, parts: Parts, *, other: int, name: str) -> Offsets:
    if isinstance(position, int):
        return {
            topic: {part.partition: _place(position, part) for part in found}
            for topic, found in parts.items()
        }
    for topic, given in position.items():
        unknown = set(given) - {part.partition for part in parts.get(topic, ())}
        if unknown:
            raise PartitionNotFoundError(
                f"{name}: {topic} has no partition {sorted(unknown)} that is to be read"
            )
    return {
        topic: {
            part.partition: _place(position.get(topic, {}).get(part.partition, other), part)
            for part in found
        }
        for topic, found in parts.items()
    }


def _place(offset: int, part: OffsetsPart) -> int:
    if offset == EARLIEST:
        return part.start_offset
    return part.end_offset if offset == LATEST else offset
