"""Where to begin and end reading, as people write it."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from goqueue.base.units import parse_duration_ms
from goqueue.cli.failure import usage
from goqueue.wire.times import parse_time_us

WORDS: Final = {
    "beginning": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
}
EPOCH_SECONDS_MAX: Final = 10**11
"""A larger number of seconds lies beyond the year 5000, so it counts milliseconds."""

_OFFSET: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXPECTED: Final = (
    'write "beginning", "end", an offset, -10 for the last ten offsets of each partition,'
    " a time such as 2026-01-31T12:00:00Z, or -1h for an hour ago"
)

Position = str | int | datetime


def read_position(text: str, *, name: str, now: datetime) -> Position:
    """Read a position, or raise Failure with an example of each kind.

    A number is an offset; behind an ``@`` it is a time, as everything there.
    """
    if text in WORDS:
        return WORDS[text]
    if _OFFSET.fullmatch(text):
        return int(text)
    if text.startswith("@"):
        return read_time(text, name=name, now=now)
    try:
        return _parse_time(text, now)
    except (ValueError, OverflowError) as error:
        raise usage(f"{name} {text}: not a position", _EXPECTED) from error


def read_time(text: str, *, name: str, now: datetime | None = None) -> datetime:
    """Read a time, with or without an ``@`` before it, or raise Failure with an example."""
    try:
        return _parse_time(text.removeprefix("@"), now or datetime.now(UTC))
    except (ValueError, OverflowError) as error:
        raise usage(
            f"{name} {text}: not a time",
            "write 2026-01-31T12:00:00Z, 2026-01-31 (local), -1h, now, today, yesterday,"
            " or seconds since 1970",
        ) from error


def _parse_time(text: str, now: datetime) -> datetime:
    """Read a word, ``-1h``, seconds or milliseconds since 1970, or a time; local without a zone."""
    if text == "now":
        return now
    if text in _DAYS_AGO:
        day = now.astimezone().date() - timedelta(days=_DAYS_AGO[text])
        return datetime(day.year, day.month, day.day).astimezone(UTC)
    if text.startswith(("-", "+")):
        return now + timedelta(milliseconds=parse_duration_ms(text))
    if _NUMBER.fullmatch(text):
        number = int(text)
        return _EPOCH + timedelta(seconds=number if number < EPOCH_SECONDS_MAX else number / 1_000)
    try:
        return _EPOCH + timedelta(microseconds=parse_time_us(text))
    except ValueError:
        return datetime.fromisoformat(text).astimezone(UTC)
