"""One request: what it asks for, read within its limits."""

import asyncio
import re
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from goqueue.base.errors import InvalidRequestError, TooLargeError
from goqueue.base.grant import Grant
from goqueue.base.units import parse_duration_ms
from goqueue.service.gate import Session
from goqueue.service.service import TURN_BYTES, Turns
from goqueue.transport.http.exchange import Exchange
from goqueue.transport.http.identity import Identities
from goqueue.transport.http.origin import is_forged
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


class Call:
    """A request, its path, its query and its body."""

    __slots__ = (
        "_exchange",
        "_identities",
        "_query",
        "_share",
        "_timeout_seconds",
        "method",
        "name_in_body",
        "path",
        "session",
        "turns",
    )

    session: Session
    """The caller, and what was granted; that of the connection until it is identified."""

    def __init__(
        self,
        exchange: Exchange,
        path: Mapping[str, str],
        share: Share,
        *,
        turns: Turns,
        timeout_seconds: float,
        identities: Identities | None = None,
    ) -> None:
        self._exchange = exchange
        self._identities = identities
        self.session = exchange.session
        self._share = share
        self._timeout_seconds = timeout_seconds
        self._query: Mapping[str, str] | None = None
        self.method = exchange.method
        """The method, in capitals."""
        self.path = path
        """The parameters in the path."""
        self.name_in_body: str | None = None
        """The field of the body that names what the request is about, if one does."""
        self.turns = turns
        """For work that is large: others run between two pieces of it."""

    def header(self, name: bytes) -> bytes | None:
        """Return a header by its lower-case name."""
        return self._exchange.headers.get(name)

    @property
    def grant(self) -> Grant:
        """Proof that the caller may have it answered, as the gate has admitted it."""
        grant = self._exchange.grant
        assert grant is not None, "admitted"
        return grant

    @grant.setter
    def grant(self, grant: Grant) -> None:
        self._exchange.grant = grant

    def identify(self) -> None:
        """Find out who sends the request, or raise."""
        if self._identities is not None:
            exchange = self._exchange
            self.session = exchange.session = self._identities.session(
                exchange.headers, exchange.query, exchange.session
            )

    @property
    def is_forged(self) -> bool:
        """Whether a page that is not of this broker makes a browser send this."""
        return is_forged(self._exchange.headers)

    def room_for_reading(self) -> ReadRoom:
        """Return memory for messages to be read for the reply."""
        return self._share.for_reading()

    @property
    def is_gone(self) -> bool:
        """Whether the client is gone."""
        return self._exchange.is_gone

    async def gone(self) -> None:
        """Return when the client is gone. For requests without a body."""
        await self._exchange.gone()

    # The query. An empty parameter is an absent one.

    def text(self, name: str) -> str | None:
        """Return a parameter of the query."""
        if self._query is None:
            self._query = _parse_query(self._exchange.query.decode("latin-1"))
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
        """Return True if a parameter of the query is switched on."""
        return (self.text(name) or "").lower() in {"1", "t", "true"}

    # The body.

    async def body(self, decoder: msgspec.json.Decoder[T], *, bytes_max: int) -> T:
        """Return the JSON body as a value of the decoder's type, or raise naming what is wrong.

        Where the body names what the request is about, the gate is asked again.
        """
        decoded = decode(decoder, await self.raw_body(bytes_max))
        name = None if self.name_in_body is None else getattr(decoded, self.name_in_body)
        if name:
            # Until now the gate knew that there is a request of the kind, and not about what.
            self.grant = self.session.admit(self.grant.deed, (name,))
        return decoded

    @property
    def body_here(self) -> bytes:
        """The body as far as it is here; it stays to be read."""
        return self._exchange.body

    async def raw_body(self, bytes_max: int) -> bytes | bytearray:
        """Return the body, or raise when it is larger than it may be."""
        declared = self.header(b"content-length")
        if declared is not None and (not _DIGITS.fullmatch(declared) or int(declared) > bytes_max):
            raise _too_large(bytes_max)
        if self._exchange.is_whole:
            # Mostly it came with the head, and there is nothing to wait for.
            body = self._grow(b"", self._exchange.take(), bytes_max)
        else:
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    body = await self._receive_all(bytes_max)
            except TimeoutError as error:
                raise BodyTimeoutError from error
        if len(body) > TURN_BYTES:
            await self.turns.take()
        return body

    async def _receive_all(self, bytes_max: int) -> bytes | bytearray:
        body: bytes | bytearray = b""
        while True:
            body = self._grow(body, await self._exchange.read(), bytes_max)
            if self._exchange.is_whole and not self._exchange.size:
                return body

    def _grow(self, body: bytes | bytearray, piece: bytes, bytes_max: int) -> bytes | bytearray:
        """Return the body with another piece, or raise if there is no room for it."""
        if len(body) + len(piece) > bytes_max:
            raise _too_large(bytes_max)
        self._share.grow(len(piece))
        if not body:
            return piece
        if not isinstance(body, bytearray):
            return bytearray(body) + piece
        body += piece
        return body


def _parse_query(text: str) -> dict[str, str]:
    """Return the parameters of a query; of one that is there twice the last counts."""
    if "%" in text or "+" in text:
        return dict(parse_qsl(text, keep_blank_values=True))
    pairs = [part.partition("=") for part in text.split("&")]
    return {name: value for name, _, value in pairs}


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
