"""Where reading begins and ends: topics chosen, words and times turned into offsets."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from goqueue.base.errors import OffsetOutOfRangeError, PartitionNotFoundError, TopicNotFoundError
from goqueue.base.units import US_PER_MS
from goqueue.client.protocol.chunk import Chunk
from goqueue.spark.connector.option_places import (
    EARLIEST,
    LATEST,
    TOPICS_MAX,
    Offsets,
    Position,
    Times,
)
from goqueue.spark.connector.options import OptionsError, ReadOptions
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
        return _at_time(log, options, options.start_ms, is_needed=options.needs_start_time)
    if options.start_times:
        found = _at_times(
            log, parts, options.start_times, is_needed=options.needs_start_time, name="starting"
        )
        return _resolve(found, parts, other=EARLIEST, name="startingOffsetsByTimestamp")
    return _resolve(options.start, parts, other=EARLIEST, name="startingOffsets")


def ends(log: Log, options: ReadOptions, parts: Parts) -> Offsets:
    """Return the offset before which reading ends in each partition."""
    if options.end_ms is not None:
        found = _at_time(log, options, options.end_ms, is_needed=False)
    elif options.end_times:
        found = _at_times(log, parts, options.end_times, is_needed=False, name="ending")
        found = _resolve(found, parts, other=LATEST, name="endingOffsetsByTimestamp")
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


def _at_time(log: Log, options: ReadOptions, at_ms: int, *, is_needed: bool) -> Offsets:
    """Return the first offset at or after a time in each partition, its end if there is none."""
    return {
        topic: {one.partition: _late_place(topic, one, at_ms, is_needed=is_needed) for one in parts}
        for topic, parts in chosen_parts(log, options, at_us=at_ms * US_PER_MS).items()
    }


def _at_times(log: Log, parts: Parts, times: Times, *, is_needed: bool, name: str) -> Offsets:
    """Return the same for a time of each partition; those that are not named are left out."""
    unread = sorted(set(times) - set(parts))
    if unread:
        raise OptionsError(f"{name}OffsetsByTimestamp: {', '.join(unread)}: not to be read")
    found: Offsets = {}
    for topic, given in times.items():
        offsets = found[topic] = {}
        for at_ms in set(given.values()):
            there = {one.partition: one for one in log.offsets(topic, at_us=at_ms * US_PER_MS)}
            for partition in (number for number, time in given.items() if time == at_ms):
                # A partition that is not there is named by whoever resolves the offsets.
                part = there.get(partition, OffsetsPart(partition, 0, 0, 0))
                offsets[partition] = _late_place(topic, part, at_ms, is_needed=is_needed)
    return found


def _late_place(topic: str, part: OffsetsPart, at_ms: int, *, is_needed: bool) -> int:
    if is_needed and part.offset < 0:
        raise OffsetOutOfRangeError(
            f"{topic}/{part.partition} has no message at or after {at_ms};"
            " startingOffsetsByTimestampStrategy=latest begins at its end"
        )
    return place_of(part)


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
