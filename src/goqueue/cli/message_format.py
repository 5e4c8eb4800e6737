"""How ``consume`` writes messages: format strings, JSON lines, YAML documents."""

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from goqueue.base.units import US_PER_MS
from goqueue.cli.failure import Failure, usage
from goqueue.cli.output import Output, dump
from goqueue.cli.terminal import escape, text_of
from goqueue.wire.times import format_time_us

if TYPE_CHECKING:
    from goqueue import Message

PIPE_FORMAT: Final = r"%v\n"

FORMAT_HELP: Final = r"""What to print for each message: %t topic, %p partition, %o offset, %k key,
%v value, %h headers, %T time, %s milliseconds since 1970, %P priority, %K and %V sizes of key and
value, %% a percent sign; \n \t \0 \\ and \xHH as usual."""

_PRIORITIES: Final = ("critical", "high", "normal", "low", "background")
_TOKEN: Final = re.compile(r"%(.)|\\(x[0-9A-Fa-f]{2}|.)|([^%\\]+)|(.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

Piece = Callable[["Message"], bytes]


def moment(timestamp_us: int) -> str:
    """Return a time for people: RFC 3339 in UTC, with the microseconds there are."""
    return format_time_us(timestamp_us).removesuffix("000Z") + "Z"


def _number(value: int) -> bytes:
    return b"%d" % value


def _headers(message: "Message") -> bytes:
    headers = message.headers or {}
    return b",".join(name.encode() + b"=" + value for name, value in headers.items())


_PIECES: Final[Mapping[str, Piece]] = {
    "t": lambda message: message.topic.encode(),
    "p": lambda message: _number(message.partition),
    "o": lambda message: _number(message.offset),
    "k": lambda message: message.key or b"",
    "v": lambda message: message.value or b"",
    "h": _headers,
    "T": lambda message: moment(message.timestamp_us).encode(),
    "s": lambda message: _number(message.timestamp_us // US_PER_MS),
    "P": lambda message: _PRIORITIES[message.priority].encode(),
    "K": lambda message: _number(len(message.key or b"")),
    "V": lambda message: _number(len(message.value or b"")),
}
_STRANGERS: Final = frozenset("kvh")
"""Pieces whose bytes somebody else chose."""


def compile_format(text: str, *, is_terminal: bool) -> Piece:
    """Turn a format string into a function; on a terminal what strangers wrote is made harmless."""
    if text == PIPE_FORMAT and not is_terminal:
        return _value_line
    pieces: list[Piece] = []
    for letter, escaped, plain, alone in _TOKEN.findall(text):
        if alone:
            raise usage(f"--format ends with a lone {alone}", "write it twice to print one")
        if letter:
            pieces.append(_piece(letter, is_terminal=is_terminal))
        else:
            pieces.append(_constant(_unescape(escaped) if escaped else plain.encode()))
    if len(pieces) == 1:
        return pieces[0]
    return lambda message: b"".join([piece(message) for piece in pieces])


def _value_line(message: "Message") -> bytes:
    return (message.value or b"") + b"\n"


def _piece(letter: str, *, is_terminal: bool) -> Piece:
    if letter == "%":
        return _constant(b"%")
    if letter not in _PIECES:
        raise usage(f"--format: there is no %{letter}", f"there are %{', %'.join(_PIECES)} and %%")
    piece = _PIECES[letter]
    if letter not in _STRANGERS or not is_terminal:
        return piece
    return lambda message: escape(text_of(piece(message))).encode()


def _constant(content: bytes) -> Piece:
    return lambda _: content


def _unescape(text: str) -> bytes:
    if text.startswith("x") and len(text) > 1:
        return bytes.fromhex(text[1:])
    if text not in _ESCAPES:
        raise usage(rf"--format: there is no \{text}", r"there are \n \t \r \0 \\ and \xHH")
    return _ESCAPES[text]


def for_people(message: "Message") -> bytes:
    """Write a message as one line that is safe to look at."""
    parts = [
        f"{message.partition}:{message.offset}",
        moment(message.timestamp_us),
        "-" if message.key is None else escape(text_of(message.key)),
        "(tombstone)" if message.value is None else escape(text_of(message.value)),
    ]
    if message.headers:
        parts.append(f"{{{escape(text_of(_headers(message)))}}}")
    return "  ".join(parts).encode() + b"\n"


def structured(output: Output, *, is_terminal: bool) -> Piece:
    """Return the function that writes JSON lines, or YAML documents."""
    if output is Output.YAML:
        return lambda message: b"---\n" + dump(Output.YAML, plain_message(message)).encode()
    if is_terminal:
        return lambda message: json.dumps(plain_message(message)).encode() + b"\n"
    return lambda message: msgspec.json.encode(plain_message(message)) + b"\n"


def plain_message(message: "Message") -> dict[str, Any]:
    """Return a message as plain values; ``produce --json`` reads them back.

    What is not text comes as base64, and the matching ``encoding`` says so.
    """
    plain: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": format_time_us(message.timestamp_us),
        "key": None,
        "value": None,
        "priority": _PRIORITIES[message.priority],
    }
    if message.deliver_at_us is not None:
        plain["deliver_at"] = format_time_us(message.deliver_at_us)
    if message.key is not None:
        plain["key"], is_text = _text(message.key)
        if not is_text:
            plain["key_encoding"] = "base64"
    if message.value is not None:
        plain["value"], is_text = _text(message.value)
        if not is_text:
            plain["encoding"] = "base64"
    if message.headers:
        plain |= _plain_headers(message.headers)
    return plain


def _plain_headers(headers: Mapping[str, bytes]) -> dict[str, Any]:
    texts = {name: _text(value) for name, value in headers.items()}
    if all(is_text for _, is_text in texts.values()):
        return {"headers": {name: text for name, (text, _) in texts.items()}}
    coded = {name: base64.b64encode(value).decode() for name, value in headers.items()}
    return {"headers": coded, "headers_encoding": "base64"}


def _text(content: bytes) -> tuple[str, bool]:
    try:
        return content.decode(), True
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), False


def lost(error: Exception) -> Failure:
    """Tell a reader of a gap how to go on behind it."""
    return Failure(str(error).partition(";")[0], code="data_loss", hint="--skip-gaps reads on")
