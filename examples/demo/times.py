"""Times as orders carry them, RFC 3339 in UTC, and the microseconds of messages.

Shape: codec.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def read_time_us(text: str) -> int:
    """Return a time as microseconds since 1970."""
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def write_time_us(time_us: int) -> str:
    """Return microseconds since 1970 as text."""
    moment = _EPOCH + timedelta(microseconds=time_us)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
