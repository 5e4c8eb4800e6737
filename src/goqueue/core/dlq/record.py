"""A dead letter: the message as it was, and beside it why it died.

Shape: codec. Key, value, headers and priority stay as they were. One more header, ``goqueue-dlq``,
tells the story as JSON; times in it are milliseconds since 1970, but for the message's own, which
is microseconds. Where the headers have no room, the story is cut: first the oldest attempts, then
the texts of errors, then names that can be found elsewhere.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from goqueue.base.limits import HEADERS_BYTES_MAX
from goqueue.core.dlq.names import ORIGIN_BYTES
from goqueue.core.record.headers import ORIGIN, TRACE
from goqueue.core.record.message import Draft, Message
from goqueue.core.tracing.traceparent import (
    HEADER,
    PACKED_BYTES,
    TraceParent,
    format_traceparent,
    pack_parent,
)

STORY: Final = "goqueue-dlq"
REDRIVES: Final = "goqueue-redrives"
REDRIVES_DIGITS_MAX: Final = 9

_COUNT_BYTES: Final = 2
_HEADER_BYTES: Final = 4
"""What a headers block and each header in it cost beside their names and values."""
_ERROR_CHARACTERS: Final = (200, 40, 0)
"""How long errors may be, where the headers leave less and less room."""
_LAST_CUTS: Final[Sequence[Mapping[str, Any]]] = (
    {"receipt_log": (), "trace": ""},
    {"last_consumer": ""},
    {"last_group": "", "original_topic": ""},
)

END_OF_TIME_MS: Final = 253_402_300_800_000
"""The end of the year 9999, behind which no time can be written."""

Time = Annotated[int, msgspec.Meta(ge=0, lt=END_OF_TIME_MS)]
TimeUs = Annotated[int, msgspec.Meta(ge=0, lt=END_OF_TIME_MS * 1_000)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery that failed: when that was known, in whose hands, and why."""

    at_ms: Time
    consumer: str
    error: str = ""


class Story(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a dead letter comes from and what became of it there."""

    original_topic: str = ""
    original_partition: Number = 0
    original_offset: Number = 0
    original_timestamp_us: TimeUs = 0
    delivery_attempts: Number = 0
    first_delivery_ms: Time = 0
    last_delivery_ms: Time = 0
    last_consumer: str = ""
    last_group: str = ""
    reason: str = ""
    last_error: str = ""
    dlq_time_ms: Time = 0
    trace: str = ""
    receipt_log: Sequence[Attempt] = ()


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Story).decode


def bury(
    message: Message, story: Story, *, origin: bytes, trace: TraceParent | None = None
) -> Draft:
    """Return a message as a dead letter; ``trace`` is what its story goes on under."""
    headers = {name: value for name, value in (message.headers or {}).items() if name != STORY}
    given = headers.get(HEADER, b"").decode("ascii", "replace")
    told = format_traceparent(trace) if trace is not None else given
    story = msgspec.structs.replace(story, trace=told[:64])
    room = HEADERS_BYTES_MAX - _size_of(headers) - _size_of_own() - _HEADER_BYTES - len(STORY)
    return Draft(
        key=message.key,
        value=message.value,
        timestamp_us=story.dlq_time_ms * 1_000,
        headers={
            **headers,
            STORY: write_story(story, bytes_max=room),
            ORIGIN: origin,
            **_own_trace(trace),
        },
        priority=message.priority,
    )


def revive(
    message: Message, *, origin: bytes, now_us: int, trace: TraceParent | None = None
) -> Draft:
    """Return a dead letter as the message it was, with one more redrive on its count."""
    headers = {name: value for name, value in (message.headers or {}).items() if name != STORY}
    headers[REDRIVES] = str(redrives_of(message.headers) + 1).encode()
    return Draft(
        key=message.key,
        value=message.value,
        timestamp_us=now_us,
        headers={**headers, ORIGIN: origin, **_own_trace(trace)},
        priority=message.priority,
    )


def _own_trace(trace: TraceParent | None) -> dict[str, bytes]:
    return {} if trace is None else {TRACE: pack_parent(trace)}


def redrives_of(headers: Mapping[str, bytes] | None) -> int:
    """Return how often a message went back before; what is no number counts as never."""
    text = (headers or {}).get(REDRIVES, b"")
    return int(text) if text.isdigit() and len(text) <= REDRIVES_DIGITS_MAX else 0


def write_story(story: Story, *, bytes_max: int) -> bytes:
    """Return a story as JSON that fits; nothing at all where not even its end does."""
    attempts = list(story.receipt_log)
    text = _encode(story)
    while len(text) > bytes_max and len(attempts) > 1:
        # Half of what is too much, at least one: a few rounds at most, and no needless cut.
        surplus = (len(text) - bytes_max) * len(attempts) // (2 * len(text))
        del attempts[: max(surplus, 1)]
        story = msgspec.structs.replace(story, receipt_log=attempts)
        text = _encode(story)
    for characters in _ERROR_CHARACTERS:
        if len(text) <= bytes_max:
            return text
        story = _shorten(story, characters)
        text = _encode(story)
    for changes in _LAST_CUTS:
        if len(text) <= bytes_max:
            return text
        story = msgspec.structs.replace(story, **changes)
        text = _encode(story)
    return text if len(text) <= bytes_max else b""


def read_story(headers: Mapping[str, bytes] | None) -> Story:
    """Return the story of a dead letter; whatever is no story of ours is an empty one."""
    text = (headers or {}).get(STORY)
    if text is None:
        return Story()
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Story()


def _shorten(story: Story, characters: int) -> Story:
    attempts = [
        msgspec.structs.replace(attempt, error=attempt.error[:characters])
        for attempt in story.receipt_log
    ]
    return msgspec.structs.replace(
        story, last_error=story.last_error[:characters], receipt_log=attempts
    )


def _size_of(headers: Mapping[str, bytes]) -> int:
    return _COUNT_BYTES + sum(
        _HEADER_BYTES + len(name.encode()) + len(value) for name, value in headers.items()
    )


def _size_of_own() -> int:
    """Return the room for the identity, the trace, and the mark of an empty key."""
    identity = _HEADER_BYTES + len(ORIGIN) + ORIGIN_BYTES
    trace = _HEADER_BYTES + len(TRACE) + PACKED_BYTES
    return identity + trace + _HEADER_BYTES + len("__empty_key")
