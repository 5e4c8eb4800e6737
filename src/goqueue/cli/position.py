"""Where to begin and end reading, as people write it."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from goqueue.base.units import parse_duration_ms
from goqueue.cli.failure import Failure, usage
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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXPECTED: Final = (
    'write "beginning", "end", an offset, -10 for the last ten of each partition,'
    " @2026-01-31T12:00:00Z or @-1h"
)

Position = str | int | datetime


def read_position(text: str, *, name: str, now: datetime) -> Position:
    """Read a position, or raise Failure with an example of each kind."""
    if text in WORDS:
        return WORDS[text]
    if _OFFSET.fullmatch(text):
        return int(text)
    if text.startswith("@"):
        return _read_time(text.removeprefix("@"), name=name, now=now)
    raise usage(f"{name} {text}: not a position", _EXPECTED)


def _read_time(text: str, *, name: str, now: datetime) -> datetime:
    """Read ``-1h``, seconds or milliseconds since 1970, or a time; without a zone it is local."""
    try:
        if text.startswith(("-", "+")):
            return now + timedelta(milliseconds=parse_duration_ms(text))
        if _NUMBER.fullmatch(text):
            number = int(text)
            return _EPOCH + timedelta(
                seconds=number if number < EPOCH_SECONDS_MAX else number / 1_000
            )
        try:
            return _EPOCH + timedelta(microseconds=parse_time_us(text))
        except ValueError:
            return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _not_a_time(text, name) from error


def _not_a_time(text: str, name: str) -> Failure:
    return usage(
        f"{name} @{text}: not a time",
        "write @2026-01-31T12:00:00Z, @2026-01-31 (local), @-1h, or seconds since 1970",
    )
