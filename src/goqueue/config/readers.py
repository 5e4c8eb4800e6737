"""How settings are read from what people write: text, numbers, durations, addresses, lists."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from goqueue.base.secret import Secret
from goqueue.base.units import (
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

Value = str | int | float | Secret


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
    is_secret: bool = False
    """Whether it is masked wherever it is shown, and may be in a file of its own."""


def read_text(value: object) -> str:
    """Read a line of text that says something."""
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


def read_node_id(value: object) -> str:
    """Read the name of a broker."""
    text = read_text(value)
    if any(character.isspace() for character in text):
        raise ValueError("must not contain whitespace")
    if len(text) > NODE_ID_CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters; the limit is {NODE_ID_CHARACTERS_MAX}")
    return text


def read_listener(value: object) -> str:
    """Read an address to listen at."""
    return str(parse_address(read_text(value)))


def read_one_of(choices: tuple[str, ...], value: object) -> str:
    """Read one of some words."""
    text = read_text(value).lower()
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


def read_count(least: int, most: int) -> Callable[[object], Value]:
    """Return a reader of whole numbers between two bounds."""
    return partial(_bounded, _whole, str, least, most)


def read_duration(least_ms: int, most_ms: int) -> Callable[[object], Value]:
    """Return a reader of times, written as 500ms, 10s or 2h."""
    return partial(_bounded, parse_duration_ms, format_duration_ms, least_ms, most_ms)


def read_size(least: int, most: int) -> Callable[[object], Value]:
    """Return a reader of sizes, written as 64KiB or 1GiB."""
    return partial(_bounded, parse_size_bytes, format_size_bytes, least, most)


def read_flag(value: object) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    known = {"true": True, "on": True, "yes": True, "1": True}
    known |= {"false": False, "off": False, "no": False, "0": False}
    text = str(value).strip().lower()
    if text not in known:
        raise ValueError(f"{text!r} is not true or false")
    return known[text]


def read_ratio(value: object) -> float:
    """Read a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a number, got {_kind(value)}")  # noqa: TRY004 - bad input
    text = str(value)
    number = float(text) if _FRACTION.fullmatch(text) else -1.0
    if not 0 <= number <= 1:
        raise ValueError(f"{text} is not a number from 0 to 1, for example 0.01")
    return number


def read_exporters(value: object) -> str:
    """Read names with commas between; none at all is a choice, too."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    words = value if isinstance(value, list) else read_text(value).split(",")
    names = [
        read_one_of(EXPORTERS, word.strip() if isinstance(word, str) else word) for word in words
    ]
    return ",".join(dict.fromkeys(names))


def read_hosts(value: object) -> str:
    """Read names of hosts with commas between; none at all is a choice, too."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    names = [
        read_text(name).strip().lower()
        for name in (value if isinstance(value, list) else read_text(value).split(","))
    ]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a host, such as broker.example")
    return ",".join(dict.fromkeys(names))


def read_url(value: object) -> str:
    """Read the address of a web service."""
    text = read_text(value)
    if not _URL.fullmatch(text):
        raise ValueError(
            f'{text!r} is not a URL; write for example "http://localhost:4318/v1/traces"'
        )
    return text


def read_endpoint(value: object) -> str:
    """Read an address, with or without its scheme."""
    text = read_text(value)
    scheme, _, address = text.rpartition("://")
    if scheme not in ("", "http", "https"):
        raise ValueError(f"{text!r} is not an address such as localhost:4317")
    parse_address(address)
    return text
