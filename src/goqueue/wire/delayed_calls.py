"""The headers of requests about delayed messages.

Structs travel as msgpack arrays: a field may be added at the end with a default, never removed.
"""

from typing import Annotated

import msgspec

from goqueue.base.limits import DELAYED_PAGE_MAX
from goqueue.wire.calls import Call, Name, Natural, Number, Text


class ListDelayed(Call, frozen=True):
    """Ask which messages wait for their time."""

    topic: Name
    skip: Natural = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=DELAYED_PAGE_MAX)] = 100


class DelayedCall(Call, frozen=True):
    """Name a delayed message: by place, or by the name its sender gave it."""

    topic: Name
    partition: Number = 0
    offset: Natural = 0
    delay_id: Text | None = None


class RescheduleDelayed(Call, frozen=True):
    """Give a delayed message another time; a delay counts from when the broker hears of it."""

    topic: Name
    partition: Number = 0
    offset: Natural = 0
    delay_id: Text | None = None
    deliver_at_us: Natural | None = None
    delay_ms: int | None = None


class DelayedEntry(Call, frozen=True):
    """A message that was delayed: where it is, when it is due, and what became of it."""

    topic: str
    partition: int
    offset: int
    deliver_at_us: int
    state: str = "pending"
    remaining_ms: int = 0
    """How long it still waits; 0 where it does not."""
    delay_id: str | None = None
    """The name its sender gave it."""
    key: bytes | None = None
    """The beginning of its key, 64 bytes at most."""
    value: bytes | None = None
    """The beginning of its value, 64 bytes at most; None for a tombstone."""
    value_bytes: int = -1
    """How large its value is; -1 if the message could not be read."""


class DelayedList(Call, frozen=True):
    """Delayed messages, and how many of the topic wait in all."""

    messages: list[DelayedEntry]
    pending: int = 0
