"""Recurring schedules as JSON."""

from typing import Annotated, Literal

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.base.units import US_PER_MS, format_duration_ms, parse_duration_ms
from goqueue.core.record.message import PRIORITY_NAMES, Message, Priority, parse_priority
from goqueue.wire.http.messages import EncodingText, read_bytes
from goqueue.wire.http.stored import write_text
from goqueue.wire.schedule_calls import CreateSchedule, ScheduleDetail, ScheduleEntry
from goqueue.wire.times import format_time_us

CronText = Annotated[
    str,
    msgspec.Meta(
        description="Minute, hour, day of month, month, day of week.", examples=["*/5 * * * *"]
    ),
]
EveryText = Annotated[
    str, msgspec.Meta(description="An interval from 1s to 366d.", examples=["30s"])
]
ZoneText = Annotated[
    str,
    msgspec.Meta(
        description="The time zone of the cron line, by its IANA name.", examples=["Europe/Berlin"]
    ),
]
MissedText = Annotated[
    str,
    msgspec.Meta(
        description="What becomes of missed ticks: none, the latest, or the latest 1,000 are"
        " published.",
    ),
]


class ScheduleCreate(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to be made: ``cron`` in the zone ``tz``, or ``every``, one of them."""

    name: str
    topic: str
    value: str
    cron: CronText | None = None
    every: EveryText | None = None
    tz: ZoneText | None = None
    key: str | None = None
    headers: dict[str, str | None] | None = None
    priority: str | None = None
    missed: MissedText | None = None
    encoding: EncodingText | None = None
    key_encoding: EncodingText | None = None
    headers_encoding: EncodingText | None = None


class ScheduleSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule: when it ticks, and what became of its ticks.

    ``error`` says why the last tick was not published, or that there is no such topic.
    """

    name: str
    topic: str
    cron: CronText | None = None
    every: EveryText | None = None
    tz: ZoneText
    missed: MissedText
    state: str
    created_at: str
    next_ticks: list[str]
    published: int
    missed_ticks: int
    refused_ticks: int
    last_tick: str | None = None
    last_partition: int | None = None
    last_offset: int | None = None
    error: str | None = None
    error_at: str | None = None


class ScheduleShown(ScheduleSummary, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule with its next five ticks and the message it publishes.

    What is not text comes as base64, and the matching ``encoding`` says so.
    """

    value: str
    key: str | None = None
    headers: dict[str, str] | None = None
    priority: str
    encoding: str | None = None
    key_encoding: str | None = None
    headers_encoding: str | None = None


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules by name, each with its next tick; ``total`` is how many there are."""

    schedules: list[ScheduleSummary]
    count: int
    limit: int
    skip: int
    total: int


class ScheduleDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule is gone; what it has published stays."""

    deleted: Literal[True] = True
    name: str


def read_schedule(wanted: ScheduleCreate) -> CreateSchedule:
    """Return the request for a schedule, or raise naming the field at fault."""
    headers = {
        name: read_bytes("headers", value, wanted.headers_encoding)
        for name, value in (wanted.headers or {}).items()
        if value is not None
    }
    priority = Priority.NORMAL if wanted.priority is None else parse_priority(wanted.priority)
    return CreateSchedule(
        wanted.name,
        wanted.topic,
        read_bytes("value", wanted.value, wanted.encoding),
        wanted.cron or "",
        _every_ms(wanted.every) if wanted.every else 0,
        wanted.tz or "UTC",
        read_bytes("key", wanted.key, wanted.key_encoding) if wanted.key else None,
        headers,
        int(priority),
        wanted.missed or "one",
    )


def _every_ms(text: str) -> int:
    try:
        every_ms = parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequestError(f"every: {error}") from error
    if every_ms <= 0:
        raise InvalidRequestError(f"every: {text} is no time")
    return every_ms


def show_schedule(entry: ScheduleEntry) -> ScheduleSummary:
    """Return a schedule as it is listed."""
    return ScheduleSummary(
        name=entry.name,
        topic=entry.topic,
        cron=entry.cron or None,
        every=format_duration_ms(entry.every_ms) if entry.every_ms else None,
        tz=entry.tz,
        missed=entry.missed,
        state=entry.state,
        created_at=_time(entry.created_ms),
        next_ticks=[_time(tick_ms) for tick_ms in entry.next_ticks_ms],
        published=entry.published,
        missed_ticks=entry.missed_ticks,
        refused_ticks=entry.refused_ticks,
        last_tick=None if entry.last_tick_ms is None else _time(entry.last_tick_ms),
        last_partition=entry.last_partition if entry.last_offset >= 0 else None,
        last_offset=entry.last_offset if entry.last_offset >= 0 else None,
        error=entry.error or None,
        error_at=_time(entry.error_ms) if entry.error_ms else None,
    )


def show_detail(detail: ScheduleDetail) -> ScheduleShown:
    """Return a schedule with its message."""
    message = Message(
        TopicName(detail.schedule.topic), PartitionId(0), Offset(0), 0, detail.key, detail.value,
        detail.headers, detail.priority,
    )  # fmt: skip
    written = write_text(message)
    return ScheduleShown(
        **msgspec.structs.asdict(show_schedule(detail.schedule)),
        value=written.value or "",
        key=written.key,
        headers=written.headers,
        priority=PRIORITY_NAMES[detail.priority],
        encoding=written.encoding,
        key_encoding=written.key_encoding,
        headers_encoding=written.headers_encoding,
    )


def _time(moment_ms: int) -> str:
    return format_time_us(moment_ms * US_PER_MS)
