"""Where a reader begins and ends: words, offsets, times."""

from collections.abc import Mapping
from datetime import UTC, datetime

from goqueue.base.errors import InvalidRequestError, PartitionNotFoundError
from goqueue.wire import calls

Position = str | int | datetime | Mapping[int, int]
"""``"earliest"``, ``"latest"``, an offset, a negative count from the end, a time, or offsets by
partition."""


def microseconds_of(moment: datetime) -> int:
    """Return a time as the log keeps it; a time without a zone is local, as Python has it."""
    delta = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def resolve(
    position: Position,
    parts: list[calls.OffsetsPart],
    at_time: list[calls.OffsetsPart],
    *,
    other: str = "earliest",
) -> dict[int, int]:
    """Turn a position into an offset for each of the given partitions.

    ``at_time`` is what the broker found for a position that is a time (see ``time_of``); ``other``
    is where the partitions are that offsets by partition leave out.
    """
    if isinstance(position, datetime):
        found = {part.partition: part.offset for part in at_time}
        return {
            part.partition: part.end_offset if found[part.partition] < 0 else found[part.partition]
            for part in parts
        }
    if isinstance(position, Mapping):
        unknown = sorted(set(position) - {part.partition for part in parts})
        if unknown:
            raise PartitionNotFoundError(f"partition {unknown[0]} is not among those to be read")
        return {p.partition: _plain(position.get(p.partition, other), p) for p in parts}
    return {part.partition: _plain(position, part) for part in parts}


def time_of(position: Position | None) -> int | None:
    """Return the time the broker must look up for a position, if it is one."""
    return max(microseconds_of(position), 0) if isinstance(position, datetime) else None


def _plain(position: str | int, part: calls.OffsetsPart) -> int:
    if position == "earliest":
        return part.start_offset
    if position == "latest":
        return part.end_offset
    if isinstance(position, int) and not isinstance(position, bool):
        if position < 0:
            return max(part.end_offset + position, part.start_offset)
        return position
    raise InvalidRequestError(
        f"{position!r} is not a position; write 'earliest', 'latest', an offset, a time or offsets"
        " by partition"
    )
