"""How a group consumes: the options of its first join, their defaults and their bounds.

Shape: codec. Options are read from what people write (``visibility_timeout="30s"``); every problem
is reported at once.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from goqueue.base.errors import InvalidConfigError
from goqueue.base.limits import (
    AUTO_COMMIT_INTERVAL_MS_MAX,
    AUTO_COMMIT_INTERVAL_MS_MIN,
    BACKOFF_MS_MAX,
    DISCONNECT_GRACE_MS_MAX,
    IN_FLIGHT_MAX,
    RETRIES_MAX,
    REVOCATION_TIMEOUT_MS_MAX,
    REVOCATION_TIMEOUT_MS_MIN,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
    VISIBILITY_TIMEOUT_MS_MAX,
    VISIBILITY_TIMEOUT_MS_MIN,
)
from goqueue.base.units import MINUTE_MS, SECOND_MS, parse_duration_ms

EXCLUSIVE: Final = "exclusive"
SHARED: Final = "shared"
UNORDERED: Final = "none"
BY_KEY: Final = "key"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

HEARTBEAT_INTERVAL_MS: Final = 3 * SECOND_MS
"""How often members are asked to say that they are there."""


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One group's options. They are durable and change only while the group is empty."""

    mode: str = EXCLUSIVE
    ordering: str = UNORDERED
    visibility_timeout_ms: int = 30 * SECOND_MS
    max_retries: int = 3
    max_in_flight: int = 1_000
    backoff_ms: int = SECOND_MS
    backoff_max_ms: int = MINUTE_MS
    auto_commit: bool = False
    auto_commit_interval_ms: int = 5 * SECOND_MS
    auto_offset_reset: str = EARLIEST
    session_timeout_ms: int = 30 * SECOND_MS
    revocation_timeout_ms: int = MINUTE_MS
    disconnect_grace_ms: int = 2 * SECOND_MS

    @property
    def is_shared(self) -> bool:
        """Return True if every member may lease from every partition."""
        return self.mode == SHARED

    @property
    def is_by_key(self) -> bool:
        """Return True if the messages of a key wait for one another."""
        return self.ordering == BY_KEY


_DURATIONS: Final[Mapping[str, tuple[int, int]]] = {
    "visibility_timeout_ms": (VISIBILITY_TIMEOUT_MS_MIN, VISIBILITY_TIMEOUT_MS_MAX),
    "backoff_ms": (0, BACKOFF_MS_MAX),
    "backoff_max_ms": (0, BACKOFF_MS_MAX),
    "auto_commit_interval_ms": (AUTO_COMMIT_INTERVAL_MS_MIN, AUTO_COMMIT_INTERVAL_MS_MAX),
    "session_timeout_ms": (SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MAX),
    "revocation_timeout_ms": (REVOCATION_TIMEOUT_MS_MIN, REVOCATION_TIMEOUT_MS_MAX),
    "disconnect_grace_ms": (0, DISCONNECT_GRACE_MS_MAX),
}
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "max_retries": (0, RETRIES_MAX),
    "max_in_flight": (1, IN_FLIGHT_MAX),
}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "mode": (EXCLUSIVE, SHARED),
    "ordering": (UNORDERED, BY_KEY),
    "auto_offset_reset": (EARLIEST, LATEST),
}
OPTION_NAMES: Final = GroupOptions.__struct_fields__
assert set(OPTION_NAMES) == {*_DURATIONS, *_NUMBERS, *_CHOICES, "auto_commit"}


def read_options(stated: Mapping[str, object]) -> dict[str, Any]:
    """Return what is stated, checked, or raise with every problem in it. None states nothing."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for given, value in stated.items():
        if value is None:
            continue
        name = given if given in OPTION_NAMES else f"{given}_ms"
        try:
            values[name] = _read(name, given, value)
        except ValueError as error:
            problems.append(f"{given[:40]}: {error}")
    if problems:
        raise InvalidConfigError("; ".join(problems))
    return values


def change_options(options: GroupOptions, values: Mapping[str, Any]) -> GroupOptions:
    """Return the options with checked values put in."""
    changed = msgspec.structs.replace(options, **values)
    if changed.backoff_max_ms < changed.backoff_ms:
        raise InvalidConfigError(
            f"backoff_max: {changed.backoff_max_ms} ms is less than a backoff of"
            f" {changed.backoff_ms} ms"
        )
    return changed


def _read(name: str, given: str, value: object) -> int | str | bool:
    if name in _CHOICES:
        if value in _CHOICES[name]:
            return str(value)
        raise ValueError(f"must be one of {', '.join(_CHOICES[name])}")
    if name == "auto_commit":
        if isinstance(value, bool):
            return value
        raise ValueError("must be true or false")
    if name in _DURATIONS:
        read: Callable[[object], int] = _integer if given == name else _duration
        return _bound(read(value), *_DURATIONS[name], unit=" ms")
    if name in _NUMBERS:
        return _bound(_integer(value), *_NUMBERS[name])
    raise ValueError(f"no such option; there are {', '.join(OPTION_NAMES)}")


def _duration(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError('expected a duration such as "30s"')  # noqa: TRY004 - one kind of problem
    return parse_duration_ms(value)


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"expected a whole number, got {type(value).__name__}")  # noqa: TRY004
    return value


def _bound(number: int, least: int, most: int, *, unit: str = "") -> int:
    if not least <= number <= most:
        raise ValueError(f"{number}{unit} is not between {least} and {most}")
    return number
