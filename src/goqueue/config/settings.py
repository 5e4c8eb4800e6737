"""What an operator may set: names, meaning and bounds of every field of ``BrokerConfig``."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from goqueue.base.limits import TRACE_SPANS_MAX
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
FILE_EXPORTER: Final = "file"
STDOUT_EXPORTER: Final = "stdout"
OTLP_HTTP_EXPORTER: Final = "otlp-http"
OTLP_GRPC_EXPORTER: Final = "otlp-grpc"
JAEGER_EXPORTER: Final = "jaeger"
EXPORTERS: Final = (
    FILE_EXPORTER,
    STDOUT_EXPORTER,
    OTLP_HTTP_EXPORTER,
    OTLP_GRPC_EXPORTER,
    JAEGER_EXPORTER,
)
LOG_FORMATS: Final = ("auto", "console", "json")
NODE_ID_CHARACTERS_MAX: Final = 249

_INTEGER: Final = re.compile(r"\d{1,15}", re.ASCII)
_FRACTION: Final = re.compile(r"\d{0,3}\.?\d{1,9}(e-\d{1,2})?", re.ASCII)
_HOST_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?", re.ASCII)
_URL: Final = re.compile(r"https?://[!-~]{1,2000}", re.ASCII)

Value = str | int | float


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


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "on": True, "yes": True, "1": True}
    known |= {"false": False, "off": False, "no": False, "0": False}
    text = str(value).strip().lower()
    if text not in known:
        raise ValueError(f"{text!r} is not true or false")
    return known[text]


def _ratio(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a number, got {_kind(value)}")  # noqa: TRY004 - bad input
    text = str(value)
    number = float(text) if _FRACTION.fullmatch(text) else -1.0
    if not 0 <= number <= 1:
        raise ValueError(f"{text} is not a number from 0 to 1, for example 0.01")
    return number


def _exporters(value: object) -> str:
    """Read names with commas between; none at all is a choice, too."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    words = value if isinstance(value, list) else _text(value).split(",")
    names = [_one_of(EXPORTERS, word.strip() if isinstance(word, str) else word) for word in words]
    return ",".join(dict.fromkeys(names))


def _hosts(value: object) -> str:
    """Read names of hosts with commas between; none at all is a choice, too."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    names = [
        _text(name).strip().lower()
        for name in (value if isinstance(value, list) else _text(value).split(","))
    ]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a host, such as broker.example")
    return ",".join(dict.fromkeys(names))


def _url(value: object) -> str:
    text = _text(value)
    if not _URL.fullmatch(text):
        raise ValueError(
            f'{text!r} is not a URL; write for example "http://localhost:4318/v1/traces"'
        )
    return text


def _endpoint(value: object) -> str:
    text = _text(value)
    scheme, _, address = text.rpartition("://")
    if scheme not in ("", "http", "https"):
        raise ValueError(f"{text!r} is not an address such as localhost:4317")
    parse_address(address)
    return text


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
        field="http_hosts",
        key="http.hosts",
        environment="GOQUEUE_HTTP_HOSTS",
        flag=None,
        meaning="names HTTP clients may call this broker by, with commas between; addresses,"
        " localhost and the node's id always may",
        read=_hosts,
        show=lambda value: str(value) or "none",
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
        field="tracing_enabled",
        key="tracing.enabled",
        environment="GOQUEUE_TRACING_ENABLED",
        flag=None,
        meaning="whether the stories of messages are traced at all: true or false",
        read=_flag,
        show=lambda value: str(bool(value)).lower(),
    ),
    Setting(
        field="tracing_rate",
        key="tracing.sampling_rate",
        environment="GOQUEUE_TRACING_SAMPLING_RATE",
        flag=None,
        meaning="share of messages that is traced, 0 to 1; dead letters always are",
        read=_ratio,
    ),
    Setting(
        field="tracing_spans",
        key="tracing.buffer_spans",
        environment="GOQUEUE_TRACING_BUFFER_SPANS",
        flag=None,
        meaning="most spans kept in memory; older ones make room",
        read=_count(1_000, TRACE_SPANS_MAX),
    ),
    Setting(
        field="tracing_exporters",
        key="tracing.exporters",
        environment="GOQUEUE_TRACING_EXPORTERS",
        flag=None,
        meaning=f"where spans go beside memory, with commas between: {', '.join(EXPORTERS)}",
        read=_exporters,
        show=lambda value: str(value) or "none",
    ),
    Setting(
        field="tracing_export_interval_ms",
        key="tracing.export_interval",
        environment="GOQUEUE_TRACING_EXPORT_INTERVAL",
        flag=None,
        meaning="longest wait of a span for others before it is exported",
        read=_duration(10, HOUR_MS),
        show=format_duration_ms,
    ),
    Setting(
        field="tracing_files_max",
        key="tracing.files",
        environment="GOQUEUE_TRACING_FILES",
        flag=None,
        meaning="most files of 10 MiB that the exporter file keeps; the oldest are deleted",
        read=_count(1, 10_000),
    ),
    Setting(
        field="tracing_otlp_http_endpoint",
        key="tracing.otlp_http_endpoint",
        environment="GOQUEUE_TRACING_OTLP_HTTP_ENDPOINT",
        flag=None,
        meaning="where the exporter otlp-http sends spans",
        read=_url,
    ),
    Setting(
        field="tracing_otlp_grpc_endpoint",
        key="tracing.otlp_grpc_endpoint",
        environment="GOQUEUE_TRACING_OTLP_GRPC_ENDPOINT",
        flag=None,
        meaning="where the exporter otlp-grpc sends spans; https:// before it means TLS",
        read=_endpoint,
    ),
    Setting(
        field="tracing_jaeger_endpoint",
        key="tracing.jaeger_endpoint",
        environment="GOQUEUE_TRACING_JAEGER_ENDPOINT",
        flag=None,
        meaning="where the exporter jaeger sends spans: Jaeger's port for OTLP over gRPC",
        read=_endpoint,
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

BY_KEY: Final = {setting.key: setting for setting in SETTINGS}
BY_ENVIRONMENT: Final = {setting.environment: setting for setting in SETTINGS}
