"""From JSON messages to drafts: every check a message passes before it meets others in a batch.

A batch is refused as a whole, so what can be wrong with one message is found here.
"""

from typing import Final, NamedTuple

import msgspec

from goqueue.base.errors import (
    GoQueueError,
    InvalidRequestError,
    TooLargeError,
)
from goqueue.base.limits import (
    DEDUP_ID_BYTES_MAX,
    DELAY_ID_BYTES_MAX,
    HTTP_MESSAGES_MAX,
    KEY_BYTES_MAX,
    TIMESTAMP_AHEAD_MS_MAX,
    VALUE_BYTES_MAX,
)
from goqueue.base.units import US_PER_MS
from goqueue.core.record.headers import check_headers
from goqueue.core.record.message import Draft, Priority, parse_priority
from goqueue.core.record.queue_rows import DELAY_ID, ON_CONFLICT, REFUSE, REPLACE
from goqueue.core.tracing.traceparent import HEADER, parse_traceparent
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.schedule.delays import check_delay
from goqueue.wire.http.delayed import read_delay_ms, read_deliver_at_us
from goqueue.wire.http.messages import PublishMessage, PublishPlain, read_bytes
from goqueue.wire.times import parse_time_us

TRACEPARENT: Final = HEADER.encode()
_PLAIN: Final = msgspec.json.Decoder(PublishPlain)


class Columns(NamedTuple):
    """Messages that are keys and values and nothing else."""

    keys: list[bytes | None]
    values: list[bytes]


def read_plain(body: bytes | bytearray) -> Columns | None:
    """Return keys and values if the body holds nothing else and nothing is wrong with it.

    Anything unusual is for the longer way, which also knows what to say about it.
    """
    try:
        messages = _PLAIN.decode(body).messages
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    check_count(len(messages))
    keys = [message.key.encode() if message.key else None for message in messages]
    values = [message.value.encode() for message in messages]
    if max(len(key) if key else 0 for key in keys) > KEY_BYTES_MAX:
        return None
    return Columns(keys, values) if max(map(len, values)) <= VALUE_BYTES_MAX else None


def check_count(count: int) -> None:
    """Refuse a request with no message, or with more than it may have."""
    if count == 0:
        raise InvalidRequestError("at least one message required")
    if count > HTTP_MESSAGES_MAX:
        raise TooLargeError(f"messages: {count} messages; the limit is {HTTP_MESSAGES_MAX}")


class Now(NamedTuple):
    """One moment by the wall clock, by the earlier of wall and steady time, and by the later."""

    wall_us: int
    due_ms: int
    latest_us: int

    @classmethod
    def of(cls, clock: Clock) -> "Now":
        """Return this moment."""
        return cls(clock.now_us(), clock.due_ms(), clock.latest_ms() * US_PER_MS)


def draft_all(
    messages: list[PublishMessage],
    topic: Topic,
    *,
    now: Now,
    caller: bytes | None = None,
) -> list[tuple[Draft, int | None] | GoQueueError]:
    """Return each message as a draft with its partition, or why it is refused."""
    drafts: list[tuple[Draft, int | None] | GoQueueError] = []
    for message in messages:
        try:
            draft = draft_one(message, now=now, caller=caller)
            # A delayed message goes where its key leads it.
            partition = message.partition if draft.deliver_at_us is None else None
            if partition is not None:
                topic.partition(partition)
            drafts.append((draft, partition))
        except GoQueueError as error:
            drafts.append(error)
    return drafts


def draft_one(message: PublishMessage, *, now: Now, caller: bytes | None = None) -> Draft:
    """Return a message as a draft, or raise naming the field at fault.

    ``caller`` is the traceparent of the request: the parent of all that say nothing else.
    """
    priority = Priority.NORMAL
    if message.priority is not None:
        priority = parse_priority(message.priority)
    key = read_bytes("key", message.key, message.key_encoding) if message.key else None
    value = read_bytes("value", message.value, message.encoding)
    if key is not None and len(key) > KEY_BYTES_MAX:
        raise TooLargeError(f"key: {len(key)} bytes; the limit is {KEY_BYTES_MAX}")
    if len(value) > VALUE_BYTES_MAX:
        raise TooLargeError(f"value: {len(value)} bytes; the limit is {VALUE_BYTES_MAX}")
    return Draft(
        value=value,
        key=key or None,
        timestamp_us=_timestamp_us(message, now),
        headers=_headers(message, caller)
        if message.headers or message.delay_id or message.on_conflict or caller
        else None,
        priority=priority,
        deliver_at_us=_deliver_at_us(message, now),
        dedup_id=_dedup_id(message.dedup_id) if message.dedup_id else None,
    )


def read_caller(text: bytes | None) -> bytes | None:
    """Return the traceparent of a request; one that is malformed counts as absent."""
    return text if text is not None and parse_traceparent(text) is not None else None


def _headers(message: PublishMessage, caller: bytes | None) -> dict[str, bytes] | None:
    encoding = message.headers_encoding
    given = {
        name: read_bytes("headers", value, encoding)
        for name, value in (message.headers or {}).items()
        if value is not None
    }
    if HEADER in given and parse_traceparent(given[HEADER]) is None:
        del given[HEADER]
    if caller is not None:
        given.setdefault(HEADER, caller)
    if message.delay_id:
        name = message.delay_id.encode()
        if len(name) > DELAY_ID_BYTES_MAX:
            raise TooLargeError(f"delay_id: {len(name)} bytes; the limit is {DELAY_ID_BYTES_MAX}")
        given[DELAY_ID] = name
    if message.on_conflict:
        if message.on_conflict.encode() not in {REFUSE, REPLACE}:
            raise InvalidRequestError("on_conflict: must be error or replace")
        if not message.delay_id:
            raise InvalidRequestError("on_conflict: needs a delay_id")
        given[ON_CONFLICT] = message.on_conflict.encode()
    return check_headers(given) or None


def _deliver_at_us(message: PublishMessage, now: Now) -> int | None:
    now_ms = now.wall_us // US_PER_MS if message.delay else now.due_ms
    due_us = _due_us(message.delay, message.deliver_at, now_ms=now_ms)
    # Due at once it takes the place of what waits all the same.
    return now.due_ms * US_PER_MS if due_us is None and message.on_conflict else due_us


def _due_us(delay: str | None, deliver_at: str | None, *, now_ms: int) -> int | None:
    """Return when a message is due, None for at once. A delay beats a time."""
    if delay:
        due_us = (now_ms + read_delay_ms(delay)) * US_PER_MS
    elif deliver_at:
        due_us = read_deliver_at_us(deliver_at)
    else:
        return None
    check_delay(due_us // US_PER_MS - now_ms)
    return due_us if due_us > now_ms * US_PER_MS else None


def _dedup_id(text: str) -> bytes:
    dedup_id = text.encode()
    if len(dedup_id) > DEDUP_ID_BYTES_MAX:
        raise TooLargeError(f"dedup_id: {len(dedup_id)} bytes; the limit is {DEDUP_ID_BYTES_MAX}")
    return dedup_id


def _timestamp_us(message: PublishMessage, now: Now) -> int:
    """Return the time of a message: as given, or ours.

    Where a time of day is asked for, by a clock that is not known, it has the earlier of ours.
    """
    if message.timestamp is not None:
        return _time(message.timestamp, now.latest_us)
    is_time_of_day = message.deliver_at and not message.delay
    return min(now.wall_us, now.due_ms * US_PER_MS) if is_time_of_day else now.wall_us


def _time(text: str, now_us: int) -> int:
    try:
        time_us = parse_time_us(text)
    except ValueError as error:
        raise InvalidRequestError(f"invalid timestamp format: {error}") from error
    if not 0 <= time_us <= now_us + TIMESTAMP_AHEAD_MS_MAX * US_PER_MS:
        raise InvalidRequestError("timestamp: lies before 1970 or more than a day ahead")
    return time_us
