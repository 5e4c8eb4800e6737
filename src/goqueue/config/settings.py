"""What an operator may set: names, meaning and bounds of every field of ``BrokerConfig``."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from goqueue.base.units import (
    HOUR_MS,
    KiB,
    MiB,
    format_duration_ms,
    format_size_bytes,
    parse_duration_ms,
    parse_size_bytes,
)
from goqueue.config.address import parse_address

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("auto", "console", "json")
NODE_ID_CHARACTERS_MAX: Final = 249

_INTEGER: Final = re.compile(r"\d{1,15}", re.ASCII)

Value = str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One field under its four names, with the function that reads what people write."""

    field: str
    key: str
    environment: str
    flag: str | None
    meaning: str
    read: Callable[[object], Value]
    show: Callable[[int], str] = str


def _text(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        # YAML reads 1 and 1.5 as numbers where a name was meant.
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {_kind(value)}")  # noqa: TRY004 - bad input
    if not value.strip():
        raise ValueError("must not be empty")
    if not value.isprintable():
        raise ValueError("must not contain control characters")
    return value


def _node_id(value: object) -> str:
    text = _text(value)
    if any(character.isspace() for character in text):
        raise ValueError("must not contain whitespace")
    if len(text) > NODE_ID_CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters; the limit is {NODE_ID_CHARACTERS_MAX}")
    return text


def _listener(value: object) -> str:
    return str(parse_address(_text(value)))


def _one_of(choices: tuple[str, ...], value: object) -> str:
    text = _text(value).lower()
    if text not in choices:
        raise ValueError(f"{text!r} is not one of {', '.join(choices)}")
    return text


def _bounded(
    parse: Callable[[str], int],
    show: Callable[[int], str],
    least: int,
    most: int,
    value: object,
) -> int:
    if isinstance(value, str):
        number = int(value) if _INTEGER.fullmatch(value) else parse(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise ValueError(f"expected a number, got {_kind(value)}")  # noqa: TRY004 - bad input
    if not least <= number <= most:
        raise ValueError(f"{show(number)} is not between {show(least)} and {show(most)}")
    return number


def _whole(text: str) -> int:
    raise ValueError(f"{text!r} is not a whole number")


def _kind(value: object) -> str:
    kinds = {type(None): "nothing", bool: "true or false", list: "a list", dict: "a section"}
    return kinds.get(type(value), "a number" if isinstance(value, float) else type(value).__name__)


def _count(least: int, most: int) -> Callable[[object], Value]:
    return partial(_bounded, _whole, str, least, most)


def _duration(least_ms: int, most_ms: int) -> Callable[[object], Value]:
    return partial(_bounded, parse_duration_ms, format_duration_ms, least_ms, most_ms)


def _size(least: int, most: int) -> Callable[[object], Value]:
    return partial(_bounded, parse_size_bytes, format_size_bytes, least, most)


SETTINGS: Final = (
    Setting(
        field="data_dir",
        key="data_dir",
        environment="GOQUEUE_BROKER_DATADIR",
        flag="--data",
        meaning="directory that holds everything the broker stores",
        read=_text,
    ),
    Setting(
        field="node_id",
        key="node_id",
        environment="GOQUEUE_BROKER_NODEID",
        flag="--node-id",
        meaning="name of this broker in logs and statistics",
        read=_node_id,
    ),
    Setting(
        field="native_listener",
        key="listeners.native",
        environment="GOQUEUE_LISTENERS_NATIVE",
        flag="--native",
        meaning="address of the native protocol; port 0 takes a free one",
        read=_listener,
    ),
    Setting(
        field="http_listener",
        key="listeners.http",
        environment="GOQUEUE_LISTENERS_HTTP",
        flag="--http",
        meaning="address of HTTP; port 0 takes a free one",
        read=_listener,
    ),
    Setting(
        field="log_level",
        key="log.level",
        environment="GOQUEUE_LOG_LEVEL",
        flag="--log-level",
        meaning="least important lines to log: debug, info, warning or error",
        read=partial(_one_of, LOG_LEVELS),
    ),
    Setting(
        field="log_format",
        key="log.format",
        environment="GOQUEUE_LOG_FORMAT",
        flag="--log-format",
        meaning="console (colours), json (one object a line), or auto (by the terminal)",
        read=partial(_one_of, LOG_FORMATS),
    ),
    Setting(
        field="connections_max",
        key="limits.connections",
        environment="GOQUEUE_LIMITS_CONNECTIONS",
        flag=None,
        meaning="most native connections; one more is told so and closed",
        read=_count(1, 1_000_000),
    ),
    Setting(
        field="delayed_max",
        key="limits.delayed_messages",
        environment="GOQUEUE_LIMITS_DELAYED_MESSAGES",
        flag=None,
        meaning="most messages of a topic that wait for their time; one more is refused",
        read=_count(0, 100_000_000),
    ),
    Setting(
        field="http_publish_body_bytes_max",
        key="limits.http_publish_body",
        environment="GOQUEUE_LIMITS_HTTP_PUBLISH_BODY",
        flag=None,
        meaning="largest body of a publish over HTTP; larger ones are answered 413",
        read=_size(1 * KiB, 256 * MiB),
        show=format_size_bytes,
    ),
    Setting(
        field="http_body_bytes_max",
        key="limits.http_body",
        environment="GOQUEUE_LIMITS_HTTP_BODY",
        flag=None,
        meaning="largest body of any other HTTP request; larger ones are answered 413",
        read=_size(1 * KiB, 64 * MiB),
        show=format_size_bytes,
    ),
    Setting(
        field="sync_threads",
        key="storage.sync_threads",
        environment="GOQUEUE_STORAGE_SYNC_THREADS",
        flag=None,
        meaning="partitions synced to disk at the same time; more help on fast disks only",
        read=_count(1, 256),
    ),
    Setting(
        field="maintenance_interval_ms",
        key="storage.maintenance_interval",
        environment="GOQUEUE_STORAGE_MAINTENANCE_INTERVAL",
        flag=None,
        meaning="time between two looks for segments past their retention",
        read=_duration(100, HOUR_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="shutdown_timeout_ms",
        key="shutdown_timeout",
        environment="GOQUEUE_SHUTDOWN_TIMEOUT",
        flag=None,
        meaning="longest wait for requests under way when stopping; 0s waits for none",
        read=_duration(0, HOUR_MS),
        show=format_duration_ms,
    ),
)
"""Every setting, in the order in which people meet them."""

BY_FIELD: Final = {setting.field: setting for setting in SETTINGS}
BY_KEY: Final = {setting.key: setting for setting in SETTINGS}
BY_ENVIRONMENT: Final = {setting.environment: setting for setting in SETTINGS}
