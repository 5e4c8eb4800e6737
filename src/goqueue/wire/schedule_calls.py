"""The headers of requests about recurring schedules.

Structs travel as msgpack arrays: a field may be added at the end with a default, never removed.
"""

from typing import Annotated

import msgspec

from goqueue.base.limits import SCHEDULES_PAGE_MAX
from goqueue.wire.calls import Call, Name, Natural, Number, Text

ACTIVE = "active"
PAUSED = "paused"


class CreateSchedule(Call, frozen=True):
    """Make a schedule: by a cron line in a time zone, or every so many milliseconds."""

    name: Name
    topic: Name
    value: bytes
    cron: Text = ""
    every_ms: Natural = 0
    tz: Text = "UTC"
    key: bytes | None = None
    headers: dict[str, bytes] = msgspec.field(default_factory=dict)
    priority: Number = 2
    missed: Text = "one"
    """What becomes of missed ticks: ``skip``, ``one`` or ``all``."""


class ScheduleCall(Call, frozen=True):
    """Name a schedule."""

    name: Name


class ListSchedules(Call, frozen=True):
    """Ask which schedules there are, by name."""

    skip: Natural = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=SCHEDULES_PAGE_MAX)] = SCHEDULES_PAGE_MAX


class ScheduleEntry(Call, frozen=True):
    """A schedule: when it ticks, and what became of its ticks. ``error`` is why the last failed."""

    name: str
    topic: str
    cron: str
    every_ms: int
    tz: str
    missed: str
    state: str
    created_ms: int
    next_ticks_ms: list[int]
    published: int
    missed_ticks: int
    refused_ticks: int
    last_tick_ms: int | None = None
    last_partition: int = -1
    last_offset: int = -1
    error: str = ""
    error_ms: int = 0


class ScheduleDetail(Call, frozen=True):
    """A schedule with its next ticks and the message it publishes."""

    schedule: ScheduleEntry
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]
    priority: int


class ScheduleList(Call, frozen=True):
    """Schedules, each with its next tick, and how many there are in all."""

    schedules: list[ScheduleEntry]
    total: int
