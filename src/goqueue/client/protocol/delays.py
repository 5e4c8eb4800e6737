"""When a message is to be delivered, as callers say it, and the messages that wait."""

from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Final

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import DELAY_ID_BYTES_MAX, DELAY_MS_MAX
from goqueue.base.units import SECOND_MS, US_PER_MS, format_duration_ms, parse_duration_ms
from goqueue.client.protocol.positions import microseconds_of
from goqueue.wire.delayed_calls import DelayedCall, DelayedEntry, DelayedList, RescheduleDelayed

Delay = str | float | timedelta
"""``"5s"`` or ``"1h30m"``, seconds as a number, or a timedelta."""

CONFLICTS: Final = ("error", "replace")
"""What may become of a delayed message whose ``delay_id`` is taken."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was delayed. ``state`` is pending, delivered or canceled."""

    topic: str
    partition: int
    offset: int
    deliver_at_us: int
    state: str
    delay_id: str | None = None
    key: bytes | None = None
    """The beginning of its key, 64 bytes at most."""
    preview: bytes | None = None
    """The beginning of its value, 64 bytes at most."""
    value_bytes: int = -1
    """How large its value is; -1 if the broker could not read it."""

    @property
    def deliver_at(self) -> datetime:
        """When it is due, UTC."""
        return _EPOCH + timedelta(microseconds=self.deliver_at_us)


def delayed_of(entry: DelayedEntry) -> Delayed:
    """Return a message as the broker describes it."""
    return Delayed(
        topic=entry.topic,
        partition=entry.partition,
        offset=entry.offset,
        deliver_at_us=entry.deliver_at_us,
        state=entry.state,
        delay_id=entry.delay_id,
        key=entry.key,
        preview=entry.value,
        value_bytes=entry.value_bytes,
    )


def all_delayed(reply: DelayedList) -> list[Delayed]:
    """Return the waiting messages of a reply."""
    return list(map(delayed_of, reply.messages))


def delay_ms_of(delay: Delay) -> int:
    """Return a delay in whole milliseconds, rounded up so that none is too short."""
    if isinstance(delay, str):
        try:
            delay_ms = parse_duration_ms(delay)
        except ValueError as error:
            raise InvalidRequestError(f"invalid delay format: {error}") from error
    elif isinstance(delay, timedelta):
        delay_ms = -(-delay // timedelta(milliseconds=1)) if delay.days >= 0 else -1
    elif isinstance(delay, bool) or not isinstance(delay, int | float) or not isfinite(delay):
        raise InvalidRequestError(f'delay: {delay!r} is not "5s", seconds or a timedelta')
    else:
        delay_ms = int(-(-delay * SECOND_MS // 1))
    if delay_ms > DELAY_MS_MAX:
        raise InvalidRequestError(
            f"delay {format_duration_ms(delay_ms)} exceeds maximum"
            f" {format_duration_ms(DELAY_MS_MAX)}"
        )
    return delay_ms


def due_us(delay: Delay | None, deliver_at: datetime | None, *, now_us: int) -> int | None:
    """Return when a message is due, or None for at once. A delay beats a time."""
    if delay is not None:
        delay_ms = delay_ms_of(delay)
        return now_us + delay_ms * US_PER_MS if delay_ms > 0 else None
    if deliver_at is None:
        return None
    if not isinstance(deliver_at, datetime):
        raise InvalidRequestError(f"deliver_at: {deliver_at!r} is not a datetime")
    moment_us = microseconds_of(deliver_at)
    if moment_us > now_us + DELAY_MS_MAX * US_PER_MS:
        raise InvalidRequestError(
            f"deliver_at: {deliver_at} lies more than {format_duration_ms(DELAY_MS_MAX)} ahead"
        )
    return moment_us if moment_us > now_us else None


def check_delay_id(delay_id: str) -> bytes:
    """Return a name as it is stored in a header."""
    if not isinstance(delay_id, str):
        raise InvalidRequestError("delay_id: must be text")
    stored = delay_id.encode()
    if not 0 < len(stored) <= DELAY_ID_BYTES_MAX:
        raise InvalidRequestError(
            f"delay_id: {len(stored)} bytes; 1 to {DELAY_ID_BYTES_MAX} are allowed"
        )
    return stored


def check_on_conflict(on_conflict: str, delay_id: str | None) -> bytes:
    """Return what becomes of a message whose name is taken, as it is stored in a header."""
    if on_conflict not in CONFLICTS:
        raise InvalidRequestError(f"on_conflict: must be one of {', '.join(CONFLICTS)}")
    if delay_id is None:
        raise InvalidRequestError("on_conflict: needs a delay_id")
    return on_conflict.encode()


def named(
    topic: str, partition: int | None, offset: int | None, delay_id: str | None
) -> DelayedCall:
    """Return the request for a message by its place or by its name."""
    if delay_id is not None:
        if partition is not None or offset is not None:
            raise InvalidRequestError("give partition and offset, or an id, not both")
        return DelayedCall(topic, delay_id=delay_id)
    if partition is None or offset is None:
        raise InvalidRequestError("give partition and offset, or an id")
    return DelayedCall(topic, partition, offset)


def rescheduled(
    place: DelayedCall, delay: Delay | None, deliver_at: datetime | None
) -> RescheduleDelayed:
    """Return the request to give a message another time."""
    if (delay is None) == (deliver_at is None):
        raise InvalidRequestError("give delay or deliver_at, one of them")
    return RescheduleDelayed(
        place.topic,
        place.partition,
        place.offset,
        place.delay_id,
        None if deliver_at is None else max(microseconds_of(deliver_at), 0),
        None if delay is None else delay_ms_of(delay),
    )
