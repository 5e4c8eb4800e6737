"""Times as people write them, RFC 3339, and the microseconds the broker works with.

Shape: codec.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final

from goqueue.base.units import MINUTE_MS, NS_PER_US, SECOND_MS, US_PER_MS

SECOND_US: Final = SECOND_MS * US_PER_MS
_MINUTES_PER_HOUR: Final = 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# A plus sign in a query string arrives as a space, so a space is read as one.
_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+\- ])(\d\d):(\d\d))",
    re.ASCII,
)
_UNIX_MS: Final = re.compile(r"\d{1,15}", re.ASCII)


def parse_time_us(text: str) -> int:
    """Read RFC 3339 with a zone as microseconds since 1970, or raise ValueError."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!a} is not a time; write for example 2026-01-31T12:00:00Z")
    *numbers, fraction, sign, zone_hours, zone_minutes = match.groups()
    year, month, day, hour, minute, second = map(int, numbers)
    offset_minutes = 0
    if sign is not None:
        if int(zone_minutes) >= _MINUTES_PER_HOUR:
            raise ValueError(f"{text!a} is in no time zone")
        offset_minutes = int(zone_hours) * _MINUTES_PER_HOUR + int(zone_minutes)
    try:
        zone = timezone(timedelta(minutes=-offset_minutes if sign == "-" else offset_minutes))
        moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError as error:
        raise ValueError(f"{text!a} is not a time: {error}") from error
    nanoseconds = int((fraction or "").ljust(9, "0"))
    return (moment - _EPOCH) // _MICROSECOND + nanoseconds // NS_PER_US


def parse_moment_us(text: str) -> int:
    """Read RFC 3339 or milliseconds since 1970."""
    if _UNIX_MS.fullmatch(text):
        return int(text) * US_PER_MS
    return parse_time_us(text)


def format_time_us(timestamp_us: int) -> str:
    """Write a time the way messages carry it: RFC 3339 in UTC with nanoseconds."""
    second, microseconds = divmod(timestamp_us, SECOND_US)
    return f"{_second(second)}.{microseconds:06d}000Z"


@lru_cache(maxsize=4096)
def _second(second: int) -> str:
    # Neighbouring messages share their second, and making a datetime is most of the cost.
    return (_EPOCH + timedelta(seconds=second)).isoformat()[: len("2026-01-31T12:00:00")]


assert _MINUTES_PER_HOUR * SECOND_MS == MINUTE_MS
