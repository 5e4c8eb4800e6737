"""Delayed messages as JSON."""

from typing import Annotated, Literal

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import parse_duration_ms
from goqueue.wire.times import parse_time_us

UTF8_BYTES_MAX = 4
"""No character takes more bytes than this."""

State = Annotated[str, msgspec.Meta(examples=["pending", "delivered", "canceled"])]


class DelayedMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that was delayed: where it is, when it is due, and what became of it.

    Of key and value the first 64 bytes are shown; ``value_bytes`` says how large the value is. What
    is not text has its bytes spelled out.
    """

    topic: str
    partition: int
    offset: int
    deliver_at: str
    time_remaining: Annotated[str, msgspec.Meta(examples=["1h30m0s", "0s"])]
    state: State
    delay_id: str | None = None
    key: str | None = None
    preview: str | None = None
    value_bytes: int | None = None


class DelayedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that wait, in the order of partitions and offsets; ``pending`` is all of them."""

    topic: str
    messages: list[DelayedMessage]
    count: int
    limit: int
    skip: int
    pending: int = 0


class DelayedNamed(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that wait under the name their sender gave them."""

    topic: str
    delay_id: str
    messages: list[DelayedMessage]
    count: int


class DelayedCanceled(msgspec.Struct, frozen=True, kw_only=True):
    """A message will never be delivered."""

    canceled: Literal[True] = True
    topic: str
    partition: int
    offset: int


class NamedCanceled(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a name will never be delivered."""

    canceled: Literal[True] = True
    topic: str
    delay_id: str
    messages: list[DelayedMessage]
    count: int


class Reschedule(msgspec.Struct, frozen=True, kw_only=True):
    """Another time for a message: from now, or at a moment. A delay beats a moment."""

    delay: str | None = None
    deliver_at: str | None = msgspec.field(default=None, name="deliverAt")


class WheelStats(msgspec.Struct, frozen=True, kw_only=True):
    """The timing wheels of all partitions, together."""

    total_scheduled: int
    total_expired: int
    total_canceled: int
    current_active: int
    current_tick: int


class DelayStats(msgspec.Struct, frozen=True, kw_only=True):
    """What was delayed since the broker started, and what waits now."""

    total_scheduled: int
    total_delivered: int
    total_canceled: int
    total_pending: int
    by_topic: dict[str, int]
    timer_wheel: WheelStats


class PartitionPriorities(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one partition by priority, most urgent first."""

    pending: list[int]
    consumed: list[int]
    total: list[int]
    oldest_pending: list[str]


class TopicPriorities(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one topic by priority, most urgent first."""

    total_by_priority: list[int]
    partitions: dict[str, PartitionPriorities]


class PriorityStats(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in the logs by priority: critical, high, normal, low, background."""

    total_by_priority: list[int]
    topics: dict[str, TopicPriorities]


def preview_text(content: bytes) -> str:
    """Return the beginning of a key or value as text; a character that was cut off is left out."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        is_cut = error.end == len(content) and len(content) - error.start < UTF8_BYTES_MAX
        if is_cut and error.start:
            return content[: error.start].decode()
        return content.decode("utf-8", "backslashreplace")


def read_delay_ms(text: str) -> int:
    """Return a delay, or raise."""
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequestError(f"invalid delay format: {error}") from error


def read_deliver_at_us(text: str) -> int:
    """Return the time at which something is due, or raise."""
    try:
        return parse_time_us(text)
    except ValueError as error:
        raise InvalidRequestError(f"invalid deliverAt format: {error}") from error
