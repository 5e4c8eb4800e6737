"""Recurring schedules as programs have them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypedDict

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.client.protocol.delays import Delay, delay_ms_of
from goqueue.core.record.headers import check_headers
from goqueue.core.record.message import Priority, parse_priority
from goqueue.wire.schedule_calls import CreateSchedule, ScheduleDetail

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring schedule: when it ticks, what it publishes, and what became of its ticks."""

    name: str
    topic: str
    value: bytes
    cron: str
    every_ms: int
    tz: str
    key: bytes | None
    headers: Mapping[str, bytes]
    priority: int
    missed: str
    state: str
    """``active`` or ``paused``."""
    next_ticks: Sequence[datetime]
    last_tick: datetime | None
    last_partition: int
    last_offset: int
    published: int
    missed_ticks: int
    refused_ticks: int
    error: str
    """Why the last tick was not published; empty if it was."""


def schedule_of(detail: ScheduleDetail) -> Schedule:
    """Return a schedule as the broker describes it."""
    entry = detail.schedule
    return Schedule(
        name=entry.name,
        topic=entry.topic,
        value=detail.value,
        cron=entry.cron,
        every_ms=entry.every_ms,
        tz=entry.tz,
        key=detail.key,
        headers=detail.headers,
        priority=detail.priority,
        missed=entry.missed,
        state=entry.state,
        next_ticks=[_moment(tick_ms) for tick_ms in entry.next_ticks_ms],
        last_tick=None if entry.last_tick_ms is None else _moment(entry.last_tick_ms),
        last_partition=entry.last_partition,
        last_offset=entry.last_offset,
        published=entry.published,
        missed_ticks=entry.missed_ticks,
        refused_ticks=entry.refused_ticks,
        error=entry.error,
    )


class ScheduledFields(TypedDict, total=False):
    """What the message of a schedule may have beside its value."""

    key: bytes | None
    headers: Mapping[str, bytes | str] | None
    priority: Priority | str | int | None


When = tuple[str | None, Delay | None, str]
"""A cron line, an interval, and a time zone."""


def wanted_schedule(
    name: str, topic: str, value: bytes, when: When, *, missed: str, message: ScheduledFields
) -> CreateSchedule:
    """Return the request for a schedule."""
    cron, every, tz = when
    if unknown := message.keys() - ScheduledFields.__annotations__.keys():
        raise TypeError(f"the message of a schedule has no {', '.join(sorted(unknown))}")
    priority = message.get("priority")
    if (cron is None) == (every is None):
        raise InvalidRequestError("give cron or every, one of them")
    if not isinstance(value, bytes):
        raise InvalidRequestError("value: must be bytes")
    every_ms = 0
    if every is not None:
        every_ms = max(delay_ms_of(every), 0)
        if not every_ms:
            raise InvalidRequestError(f"every: {every!r} is no time")
    elif not cron:
        raise InvalidRequestError("cron: is empty")
    return CreateSchedule(
        name,
        topic,
        value,
        cron or "",
        every_ms,
        tz,
        message.get("key"),
        check_headers(message.get("headers") or {}),
        int(Priority.NORMAL if priority is None else parse_priority(priority)),
        missed,
    )


def _moment(tick_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=tick_ms)
