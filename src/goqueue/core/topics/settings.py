"""How a topic is kept: the settings, their defaults and their bounds.

Shape: codec. Settings are read from what people write (``retention_ms="7d"``) and every problem is
reported at once.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from goqueue.base.errors import InvalidConfigError
from goqueue.base.limits import (
    DEDUP_WINDOW_MS_MAX,
    FRAME_BYTES_MAX,
    RETENTION_MS_MAX,
    SEGMENT_BYTES,
    SEGMENT_BYTES_MIN,
    SYNC_INTERVAL_MS_MAX,
)
from goqueue.base.units import (
    DAY_MS,
    HOUR_MS,
    GiB,
    format_duration_ms,
    parse_duration_ms,
    parse_size_bytes,
)
from goqueue.core.schemas.strategy import BY_TOPIC, STRATEGIES

FSYNC: Final = "fsync"
OS: Final = "os"
INTERVAL_PREFIX: Final = "interval:"
DELETE: Final = "delete"
COMPACT: Final = "compact"
OFF: Final = "off"
ON: Final = "on"
TO_DLQ: Final = "dlq"
AS_BROKER: Final = "broker"
RETENTION_BYTES_MAX: Final = 2**62
SEGMENT_BYTES_MAX: Final = 1 * GiB
assert SEGMENT_BYTES_MAX > FRAME_BYTES_MAX

_INTEGER: Final = re.compile(r"\d{1,19}", re.ASCII)
_FRACTION: Final = re.compile(r"\d{0,19}\.?\d{1,19}", re.ASCII)


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One topic's settings. Zero means no limit for retention and life, and off for dedup."""

    retention_ms: int = 168 * HOUR_MS
    retention_bytes: int = 0
    segment_bytes: int = SEGMENT_BYTES
    durability: str = FSYNC
    dedup_window_ms: int = 0
    message_ttl_ms: int = 0
    cleanup_policy: str = DELETE
    min_dirty_ratio: float = 0.5
    tombstone_retention_ms: int = DAY_MS
    schema_validation: str = OFF
    schema_subject: str = BY_TOPIC
    trace_sampling: float | str = AS_BROKER
    """Which share of the messages is traced; "broker" as the broker does."""

    @property
    def is_validated(self) -> bool:
        """Return True if messages must fit a schema."""
        return self.schema_validation != OFF

    @property
    def is_compacted(self) -> bool:
        """Return True if only the last message of each key is kept."""
        return COMPACT in self.cleanup_policy

    @property
    def is_expired(self) -> bool:
        """Return True if retention deletes what is old or too much."""
        return DELETE in self.cleanup_policy

    @property
    def is_fsync(self) -> bool:
        """Return True if an ack waits for the disk."""
        return self.durability == FSYNC

    @property
    def is_left_to_the_system(self) -> bool:
        """Whether nothing waits for the disk, neither publishers nor consumers."""
        return self.durability == OS

    @property
    def sync_interval_ms(self) -> int | None:
        """Return how often bytes are synced in the background, if not before every ack."""
        if not self.durability.startswith(INTERVAL_PREFIX):
            return None
        return parse_duration_ms(self.durability.removeprefix(INTERVAL_PREFIX))

    @property
    def ack_durability(self) -> str:
        """Return what an ack of this topic means: the bytes are synced, or with the system."""
        return FSYNC if self.is_fsync else OS


def _duration(value: object) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value) is None:
        return parse_duration_ms(value)
    return _integer(value)


def _size(value: object) -> int:
    return parse_size_bytes(value) if isinstance(value, str) else _integer(value)


def _integer(value: object) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"expected a whole number, got {type(value).__name__}")  # noqa: TRY004
    return value


def _durability(value: object) -> str:
    if value in (FSYNC, OS):
        return str(value)
    if isinstance(value, str) and value.startswith(INTERVAL_PREFIX):
        interval_ms = parse_duration_ms(value.removeprefix(INTERVAL_PREFIX))
        if 1 <= interval_ms <= SYNC_INTERVAL_MS_MAX:
            return INTERVAL_PREFIX + format_duration_ms(interval_ms)
    raise ValueError('must be "fsync", "os" or "interval:" with 1ms to 1h, for example interval:1s')


def _cleanup_policy(value: object) -> str:
    if isinstance(value, str):
        words = {word.strip() for word in value.split(",")}
        if words <= {COMPACT, DELETE}:
            return ",".join(sorted(words))
    raise ValueError('must be "delete", "compact" or "compact,delete"')


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(value)

    return read


def _ratio(value: object) -> float:
    if isinstance(value, str) and _FRACTION.fullmatch(value):
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError("must be a number from 0 to 1, for example 0.5")
    return float(value)


def _sampling(value: object) -> float | str:
    """Read a share; "broker" leaves it to the broker."""
    if value == AS_BROKER:
        return AS_BROKER
    try:
        return _ratio(value)
    except ValueError as error:
        raise ValueError('must be a number from 0 to 1, for example 0.01, or "broker"') from error


_READERS: Final[Mapping[str, tuple[Callable[[object], Any], int, int]]] = {
    "retention_ms": (_duration, 0, RETENTION_MS_MAX),
    "retention_bytes": (_size, 0, RETENTION_BYTES_MAX),
    "segment_bytes": (_size, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
    "dedup_window_ms": (_duration, 0, DEDUP_WINDOW_MS_MAX),
    "message_ttl_ms": (_duration, 0, RETENTION_MS_MAX),
    "tombstone_retention_ms": (_duration, 0, RETENTION_MS_MAX),
}
_OTHERS: Final[Mapping[str, Callable[[object], str | float]]] = {
    "durability": _durability,
    "cleanup_policy": _cleanup_policy,
    "min_dirty_ratio": _ratio,
    "schema_validation": _one_of(OFF, ON, TO_DLQ),
    "schema_subject": _one_of(*STRATEGIES),
    "trace_sampling": _sampling,
}
SETTING_NAMES: Final = (*_READERS, *_OTHERS)


def change_settings(settings: TopicSettings, changes: Mapping[str, object]) -> TopicSettings:
    """Return the settings with changes made, or raise with every problem in them."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name, value in changes.items():
        try:
            values[name] = _read(name, value)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise InvalidConfigError("; ".join(problems))
    return msgspec.structs.replace(settings, **values)


def _read(name: str, value: object) -> int | float | str:
    if name in _OTHERS:
        return _OTHERS[name](value)
    if name not in _READERS:
        raise ValueError(f"no such setting; there are {', '.join(SETTING_NAMES)}")
    read, least, most = _READERS[name]
    number = int(read(value))
    if not least <= number <= most:
        raise ValueError(f"{number} is not between {least} and {most}")
    return number
