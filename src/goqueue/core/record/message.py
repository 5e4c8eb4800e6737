"""One message, as people and programs see it.

Shape: codec.
"""

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset, PartitionId, TopicName


class Priority(IntEnum):
    """The five lanes, most urgent first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    BACKGROUND = 4


PRIORITY_NAMES: tuple[str, ...] = tuple(priority.name.lower() for priority in Priority)
_PRIORITY_BY_TEXT: dict[str, Priority] = {
    spelling: priority
    for priority in Priority
    for spelling in (priority.name, priority.name.lower(), priority.name.title())
}


def parse_priority(value: object) -> Priority:
    """Read a priority from its name (lower, Title or UPPER case) or its number."""
    if isinstance(value, str) and value in _PRIORITY_BY_TEXT:
        return _PRIORITY_BY_TEXT[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(Priority):
        return Priority(value)
    raise InvalidRequestError(
        "invalid priority: must be one of critical, high, normal, low, background"
    )


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message read from a topic. Times are microseconds since the Unix epoch, UTC."""

    topic: TopicName
    partition: PartitionId
    offset: Offset
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] | None
    priority: int
    deliver_at_us: int | None = None

    @property
    def is_tombstone(self) -> bool:
        """Return True if the message marks its key as deleted."""
        return self.value is None


class Draft(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message on its way in: checked, not yet in a partition."""

    value: bytes | None
    key: bytes | None = None
    timestamp_us: int = 0
    headers: Mapping[str, bytes] | None = None
    priority: int = Priority.NORMAL
    deliver_at_us: int | None = None
    dedup_id: bytes | None = None
