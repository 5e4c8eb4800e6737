"""One request: what it asks for, read within its limits."""

import asyncio
import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope

from goqueue.base.errors import InvalidRequestError, TooLargeError
from goqueue.base.units import parse_duration_ms
from goqueue.transport.http.room import ReadRoom, Share

T = TypeVar("T")

_DIGITS: Final = re.compile(rb"\d{1,19}")
_INT64: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_INT64_MAX: Final = 2**63 - 1
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`(?: - at `\$\.?(.*)`)?")
_NULL: Final = re.compile(r"Expected `[^`|]+`, got `null` - at `\$\.?(.*)`")
_AT: Final = re.compile(r"(.*) - at `\$\.?(.*)`")


class BodyTimeoutError(Exception):
    """The body did not come in time."""


class DisconnectedError(Exception):
    """Nobody waits for the answer any more."""


class Call:
    """A request, its path, its query and its body."""

    __slots__ = ("_query", "_receive", "_scope", "_share", "_timeout_seconds")

    def __init__(
        self, scope: Scope, receive: Receive, share: Share, *, timeout_seconds: float
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._share = share
        self._timeout_seconds = timeout_seconds
        self._query: QueryParams | None = None

    @property
    def method(self) -> str:
        """The method, in capitals."""
        return str(self._scope["method"])

    @property
    def path(self) -> Mapping[str, str]:
        """The parameters in the path."""
        path: Mapping[str, str] = self._scope.get("path_params", {})
        return path

    def header(self, name: bytes) -> bytes | None:
        """Return a header by its lower-case name."""
        for key, value in self._scope["headers"]:
            if key == name:
                return bytes(value)
        return None

    def room_for_reading(self) -> ReadRoom:
        """Return memory for messages to be read for the reply."""
        return self._share.for_reading()

    async def gone(self) -> None:
        """Return when nobody waits for the answer any more. For requests without a body."""
        while True:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                return

    # The query. An empty parameter is an absent one.

    def text(self, name: str) -> str | None:
        """Return a parameter of the query."""
        if self._query is None:
            self._query = QueryParams(self._scope["query_string"])
        return self._query.get(name) or None

    def number(self, name: str, *, default: int, least: int = 0) -> int:
        """Return a whole number of the query, or raise naming it."""
        text = self.text(name)
        if text is None:
            return default
        number = parse_int64(text)
        if number is None or number < least:
            raise InvalidRequestError(f"invalid {name}")
        return number

    def duration_ms(self, name: str, *, default: int, most: int) -> int:
        """Return a duration of the query, ``most`` at most, or raise naming it."""
        text = self.text(name)
        if text is None:
            return default
        try:
            duration_ms = parse_duration_ms(text)
        except ValueError as error:
            raise InvalidRequestError(f"invalid {name}: {error}") from error
        if duration_ms < 0:
            raise InvalidRequestError(f"invalid {name}: {text!a} is negative")
        return min(duration_ms, most)

    def flag(self, name: str) -> bool:
        """Tell whether a parameter of the query is switched on."""
        return (self.text(name) or "").lower() in {"1", "t", "true"}

    # The body.

    async def body(self, decoder: msgspec.json.Decoder[T], *, bytes_max: int) -> T:
        """Return the JSON body as a value of the decoder's type, or raise naming what is wrong."""
        return decode(decoder, await self.raw_body(bytes_max))

    async def raw_body(self, bytes_max: int) -> bytes | bytearray:
        """Return the body, or raise when it is larger than it may be."""
        declared = self.header(b"content-length")
        if declared is not None and (not _DIGITS.fullmatch(declared) or int(declared) > bytes_max):
            raise _too_large(bytes_max)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._receive_all(bytes_max)
        except TimeoutError as error:
            raise BodyTimeoutError from error

    async def _receive_all(self, bytes_max: int) -> bytes | bytearray:
        body: bytes | bytearray = b""
        while True:
            event = await self._receive()
            if event["type"] != "http.request":
                raise DisconnectedError
            chunk = event["body"]
            if len(body) + len(chunk) > bytes_max:
                raise _too_large(bytes_max)
            self._share.grow(len(chunk))
            if not body:
                body = chunk
            elif isinstance(body, bytearray):
                body += chunk
            else:
                body = bytearray(body) + chunk
            if not event["more_body"]:
                return body


def parse_int64(text: str) -> int | None:
    """Read a whole number of 64 bits; None if it is none."""
    if not _INT64.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64_MAX <= number <= _INT64_MAX else None


def decode(decoder: msgspec.json.Decoder[T], body: bytes | bytearray) -> T:
    """Read JSON; whatever is wrong with it is the caller's fault and named."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(explain(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"invalid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidRequestError("invalid JSON: nested too deeply") from error


def explain(problem: str) -> str:
    """Say what a validation error means, beginning with the field."""
    if missing := _MISSING.fullmatch(problem):
        name, place = missing.groups()
        return f"{place}.{name} is required" if place else f"{name} is required"
    if null := _NULL.fullmatch(problem):
        return f"{null[1]} is required"
    if at := _AT.fullmatch(problem):
        text, place = at.groups()
        return f"{place}: {_plain(text)}"
    return f"body: {_plain(problem)}"


def _plain(text: str) -> str:
    return (text[:1].lower() + text[1:]).replace("`", "").replace(" | null", "")


def _too_large(bytes_max: int) -> TooLargeError:
    return TooLargeError(f"request body is too large; the limit is {bytes_max} bytes")
