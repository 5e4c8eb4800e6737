"""What a recurring schedule publishes, and when.

Shape: codec. A specification is checked once, where it comes in, and kept as it is.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from goqueue.base.errors import InvalidNameError, InvalidRequestError, TooLargeError
from goqueue.base.limits import (
    KEY_BYTES_MAX,
    SCHEDULE_CRON_CHARACTERS_MAX,
    SCHEDULE_EVERY_MS_MAX,
    SCHEDULE_EVERY_MS_MIN,
    SCHEDULE_VALUE_BYTES_MAX,
)
from goqueue.base.names import check_name, is_internal, topic_name
from goqueue.base.units import DAY_MS, format_duration_ms
from goqueue.core.record.headers import check_headers
from goqueue.core.record.message import Priority
from goqueue.core.record.queue_rows import DELAY_ID, ON_CONFLICT

CRON_FIELDS = 5
UTC = "UTC"
HEADER_SCHEDULE = "goqueue-schedule"
"""Header of a message with the name of the schedule that published it."""
HEADER_TICK = "goqueue-tick"
"""Header of a message with the time of its tick, RFC 3339 and UTC."""


class Missed(StrEnum):
    """What becomes of ticks that no message was published for in time."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is published where, and when: by ``cron`` in a zone, or ``every_ms`` milliseconds."""

    topic: str
    value: bytes
    cron: str = ""
    every_ms: int = 0
    zone: str = UTC
    key: bytes | None = None
    headers: Mapping[str, bytes] = {}
    priority: int = Priority.NORMAL
    missed: Missed = Missed.ONE

    @property
    def size_bytes(self) -> int:
        """Return how many bytes of memory the message takes, about."""
        headers = sum(len(name) * 4 + len(value) for name, value in self.headers.items())
        return len(self.value) + len(self.key or b"") + headers


def schedule_name(name: object) -> str:
    """Return a checked name of a schedule."""
    checked = check_name(name, field="schedule name")
    if is_internal(checked):
        raise InvalidNameError("schedule names beginning with '__' belong to the broker")
    return checked


def check_spec(spec: ScheduleSpec) -> None:
    """Refuse a specification that breaks a rule; the error names the field and the limit."""
    topic_name(spec.topic)
    if is_internal(spec.topic):
        raise InvalidRequestError("topic: names beginning with '__' are written by the broker")
    _check_times(spec)
    if len(spec.value) > SCHEDULE_VALUE_BYTES_MAX:
        raise TooLargeError(
            f"value: {len(spec.value)} bytes; the limit of a schedule is {SCHEDULE_VALUE_BYTES_MAX}"
        )
    if spec.key is not None and len(spec.key) > KEY_BYTES_MAX:
        raise TooLargeError(f"key: {len(spec.key)} bytes; the limit is {KEY_BYTES_MAX}")
    for name in (HEADER_SCHEDULE, HEADER_TICK):
        if name in spec.headers:
            raise InvalidRequestError(f"headers: {name} is set by the schedule")
    for name in (DELAY_ID, ON_CONFLICT):
        if name in spec.headers:
            raise InvalidRequestError(
                f"headers: {name} is for delayed messages; those of a schedule have no delay"
            )
    check_headers(spec.headers)


def _check_times(spec: ScheduleSpec) -> None:
    if bool(spec.cron) == bool(spec.every_ms):
        raise InvalidRequestError("give cron or every, one of them")
    if spec.cron:
        _check_cron(spec.cron)
    elif not SCHEDULE_EVERY_MS_MIN <= spec.every_ms <= SCHEDULE_EVERY_MS_MAX:
        least = format_duration_ms(SCHEDULE_EVERY_MS_MIN)
        raise InvalidRequestError(
            f"every: {format_duration_ms(spec.every_ms)} is not between {least}"
            f" and {SCHEDULE_EVERY_MS_MAX // DAY_MS} days"
        )
    elif spec.zone != UTC:
        raise InvalidRequestError("tz: is for cron; an interval has no time zone")


def _check_cron(cron: str) -> None:
    if len(cron) > SCHEDULE_CRON_CHARACTERS_MAX:
        raise InvalidRequestError(
            f"cron: {len(cron)} characters; the limit is {SCHEDULE_CRON_CHARACTERS_MAX}"
        )
    fields = len(cron.split())
    if fields != CRON_FIELDS:
        raise InvalidRequestError(
            f"cron: {cron!a} has {fields} fields; five are allowed:"
            " minute, hour, day of month, month, day of week"
        )
