"""Messages as people and files write them: plain lines, lines with keys, JSON lines."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from functools import cached_property
from typing import BinaryIO, Final

import msgspec

from goqueue.base.limits import VALUE_BYTES_MAX
from goqueue.base.units import MiB
from goqueue.wire.times import parse_time_us

COMMENT: Final = b"#"
LINE_BYTES_MAX: Final = 2 * VALUE_BYTES_MAX
"""A line longer than this is no message: JSON and base64 do not even double one."""

CHUNK_BYTES: Final = 1 * MiB

_FIELDS: Final = (
    "value",
    "key",
    "headers",
    "priority",
    "partition",
    "dedup_id",
    "timestamp",
    "delay",
    "deliver_at",
    "delay_id",
    "on_conflict",
    "encoding",
    "key_encoding",
    "headers_encoding",
)
_READ_ONLY: Final = frozenset({"topic", "offset"})
"""What ``consume -o json`` adds; it says where a message was, not where it goes."""


class Style(Enum):
    """How lines are read. MIXED is what files have: JSON messages, comments and plain values."""

    LINES = "lines"
    JSON = "json"
    MIXED = "mixed"


class Outgoing(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message to be published."""

    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes | str] | None = None
    priority: str | int | None = None
    partition: int | None = None
    dedup_id: str | None = None
    timestamp: datetime | None = None
    delay: str | None = None
    deliver_at: datetime | None = None
    delay_id: str | None = None
    on_conflict: str | None = None

    @property
    def is_plain(self) -> bool:
        """Return True if there is nothing but a key and a value."""
        return (
            self.headers is None
            and self.priority is None
            and self.partition is None
            and self.dedup_id is None
            and self.timestamp is None
            and self.delay is None
            and self.deliver_at is None
            and self.delay_id is None
            and self.on_conflict is None
        )


@dataclass
class MessageLines:
    """Turns lines into messages, with what the command line says of all of them."""

    style: Style
    key: bytes | None = None
    key_delimiter: bytes | None = None
    headers: Mapping[str, bytes | str] = field(default_factory=dict)
    priority: str | None = None
    partition: int | None = None
    delay: str | None = None
    deliver_at: datetime | None = None
    delay_id: str | None = None
    on_conflict: str | None = None
    skipped: int = 0
    number: int = 0

    def read(self, lines: Iterable[bytes]) -> Iterator[Outgoing]:
        """Yield the messages of the lines; a bad one raises ValueError, ``number`` says which."""
        is_simple = self.style is Style.LINES and not self.key_delimiter and self._says_nothing
        for line in lines:
            self.number += 1
            if is_simple:
                yield Outgoing(value=line)
            elif self.style is not Style.LINES and self._is_skipped(line):
                self.skipped += 1
            else:
                yield self.one(line)

    def one(self, line: bytes) -> Outgoing:
        """Return the message of a single line."""
        return self._complete(self._read_line(line))

    @cached_property
    def _says_nothing(self) -> bool:
        delayed = (self.delay, self.deliver_at, self.delay_id, self.on_conflict)
        said = (self.key, self.priority, self.partition, *delayed)
        return not self.headers and said == (None,) * len(said)

    def _is_skipped(self, line: bytes) -> bool:
        stripped = line.strip()
        return not stripped or stripped.startswith(COMMENT)

    def _read_line(self, line: bytes) -> Outgoing:
        if self.style is Style.JSON:
            return parse_message(line)
        if self.style is Style.MIXED and looks_like_message(line):
            return parse_message(line)
        return self._split_key(line)

    def _split_key(self, line: bytes) -> Outgoing:
        if self.key_delimiter is None:
            return Outgoing(value=line)
        key, delimiter, value = line.partition(self.key_delimiter)
        if not delimiter:
            raise ValueError(f"no {self.key_delimiter.decode()!r} between key and value")
        return Outgoing(value=value, key=key)

    def _complete(self, message: Outgoing) -> Outgoing:
        """Add what the command line says, where the message itself says nothing."""
        if self._says_nothing:
            return message
        headers = {**self.headers, **(message.headers or {})}
        is_timeless = message.delay is None and message.deliver_at is None
        return Outgoing(
            value=message.value,
            key=message.key if message.key is not None else self.key,
            headers=headers or None,
            priority=message.priority if message.priority is not None else self.priority,
            partition=self.partition if self.partition is not None else message.partition,
            dedup_id=message.dedup_id,
            timestamp=message.timestamp,
            delay=self.delay if is_timeless else message.delay,
            deliver_at=self.deliver_at if is_timeless else message.deliver_at,
            delay_id=message.delay_id if message.delay_id is not None else self.delay_id,
            on_conflict=message.on_conflict or self.on_conflict,
        )


def split_lines(stream: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    """Yield lines without their ends as soon as they come; one that never ends is refused."""
    rest = b""
    while chunk := stream.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"more than {LINE_BYTES_MAX} bytes")
        advance(len(chunk))
    if rest:
        yield rest


def looks_like_message(line: bytes) -> bool:
    """Return True if a line is a JSON message rather than a value that happens to be JSON."""
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        content = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return "value" in content and set(content) <= {*_FIELDS, *_READ_ONLY}


def parse_message(line: bytes) -> Outgoing:
    """Read one JSON message, or raise ValueError naming the field at fault."""
    try:
        content = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError('not a JSON object such as {"key": "k", "value": "v"}')  # noqa: TRY004
    for name in content:
        if name not in _FIELDS and name not in _READ_ONLY:
            close = get_close_matches(name, _FIELDS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(_FIELDS)}"
            raise ValueError(f"unknown field {name!r}{hint}")
    if "value" not in content:
        raise ValueError("no value")
    return Outgoing(
        value=_bytes(content["value"], _word(content, "encoding"), "value"),
        key=_bytes(content.get("key"), _word(content, "key_encoding"), "key"),
        headers=_headers(content.get("headers"), _word(content, "headers_encoding")),
        priority=content.get("priority"),
        partition=_partition(content.get("partition")),
        dedup_id=_word(content, "dedup_id"),
        timestamp=_time(_word(content, "timestamp")),
        delay=_word(content, "delay"),
        deliver_at=_time(_word(content, "deliver_at")),
        delay_id=_word(content, "delay_id"),
        on_conflict=_word(content, "on_conflict"),
    )


def _word(content: Mapping[str, object], name: str) -> str | None:
    value = content.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be text")
    return value


def _bytes(value: object, encoding: str | None, name: str) -> bytes | None:
    if value is None:
        return None
    if encoding == "base64":
        if not isinstance(value, str):
            raise ValueError(f"{name} must be base64 text")
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{name} is not base64: {error}") from error
    if encoding not in (None, "text"):
        raise ValueError(f'{name}: the encoding must be "base64" or "text"')
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _headers(value: object, encoding: str | None) -> dict[str, bytes | str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("headers must be an object of names and values")  # noqa: TRY004
    return {name: _bytes(one, encoding, f"header {name}") or b"" for name, one in value.items()}


def _partition(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError("partition must be a number")
    return value


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=parse_time_us(text))
