"""Dead letters and redrives between the broker and JSON."""

import binascii
from collections.abc import Callable

from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import US_PER_MS
from goqueue.core.dlq.filter import Filter
from goqueue.core.dlq.names import dlq_name
from goqueue.core.dlq.record import STORY, Story, redrives_of
from goqueue.core.record.message import Message
from goqueue.wire.dlq_calls import RedriveState
from goqueue.wire.http.dlq import DeadLetter, FailedDelivery, FilterFields, RedriveJob
from goqueue.wire.http.messages import BASE64, TEXT
from goqueue.wire.http.stored import write_base64, write_text
from goqueue.wire.times import format_time_us, parse_moment_us


def read_filter(fields: FilterFields) -> Filter:
    """Return a filter, or raise naming the field at fault."""
    name, has_value, value = (fields.header or "").partition("=")
    return Filter(
        reason=_short("reason", fields.reason),
        group=_short("group", fields.group, most=249),
        key=_key("key", fields.key, fields.key_encoding),
        key_prefix=_key("key_prefix", fields.key_prefix, fields.key_encoding),
        header=_short("header", name),
        header_value=value.encode() if has_value else None,
        since_ms=_moment_ms("since", fields.since),
        until_ms=_moment_ms("until", fields.until),
        text=_short("text", fields.text),
    )


def _short(field: str, text: str | None, *, most: int = 1_000) -> str | None:
    if text is not None and len(text) > most:
        raise InvalidRequestError(f"{field}: longer than {most} characters")
    return text or None


def _key(field: str, text: str | None, encoding: str | None) -> bytes | None:
    if text is None:
        return None
    if encoding in (None, TEXT):
        return text.encode()
    if encoding != BASE64:
        raise InvalidRequestError('key_encoding: must be "base64" or "text"')
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise InvalidRequestError(f"{field}: invalid base64: {error}") from error


def _moment_ms(field: str, text: str | None) -> int | None:
    if not text:
        return None
    try:
        moment_us = parse_moment_us(text)
    except ValueError as error:
        raise InvalidRequestError(f"{field}: {error}") from error
    if moment_us < 0:
        raise InvalidRequestError(f"{field}: lies before 1970")
    return moment_us // US_PER_MS


def write_filter(chosen: Filter) -> FilterFields | None:
    """Return a filter as people wrote it, None where everything is meant."""
    if chosen.is_empty:
        return None
    keys = [key for key in (chosen.key, chosen.key_prefix) if key is not None]
    is_text = all(map(_is_text, keys))
    write: Callable[[bytes], str] = bytes.decode if is_text else _base64
    header = chosen.header
    if header is not None and chosen.header_value is not None:
        header = f"{header}={chosen.header_value.decode(errors='replace')}"
    return FilterFields(
        reason=chosen.reason,
        group=chosen.group,
        key=None if chosen.key is None else write(chosen.key),
        key_prefix=None if chosen.key_prefix is None else write(chosen.key_prefix),
        key_encoding=None if is_text else BASE64,
        header=header,
        since=_time(chosen.since_ms),
        until=_time(chosen.until_ms),
        text=chosen.text,
    )


def _time(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else format_time_us(moment_ms * US_PER_MS)


def _is_text(part: bytes) -> bool:
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return True


def _base64(part: bytes) -> str:
    return binascii.b2a_base64(part, newline=False).decode()


def write_letter(
    message: Message, story: Story, *, source: str, is_base64: bool = False
) -> DeadLetter:
    """Return a dead letter as the contract's document."""
    own = {name: value for name, value in (message.headers or {}).items() if name != STORY}
    bare = Message(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp_us,
        message.key,
        message.value,
        own or None,
        message.priority,
    )
    stored = write_base64(bare) if is_base64 else write_text(bare)
    return DeadLetter(
        partition=message.partition,
        offset=message.offset,
        original_topic=story.original_topic or source,
        original_partition=story.original_partition,
        original_offset=story.original_offset,
        original_timestamp=format_time_us(story.original_timestamp_us),
        original_key=stored.key,
        original_value=stored.value,
        delivery_attempts=story.delivery_attempts,
        first_delivery=format_time_us(story.first_delivery_ms * US_PER_MS),
        last_delivery=format_time_us(story.last_delivery_ms * US_PER_MS),
        last_consumer=story.last_consumer,
        last_group=story.last_group,
        reason=story.reason,
        last_error=story.last_error,
        dlq_time=format_time_us(message.timestamp_us),
        receipt_log=[
            FailedDelivery(
                time=format_time_us(attempt.at_ms * US_PER_MS),
                consumer=attempt.consumer,
                error=attempt.error,
            )
            for attempt in story.receipt_log
        ],
        priority=stored.priority,
        headers=stored.headers,
        encoding=stored.encoding,
        key_encoding=stored.key_encoding,
        headers_encoding=stored.headers_encoding,
        trace=story.trace or None,
        redrives=redrives_of(message.headers),
    )


def write_job(job: RedriveState, *, topic: str) -> RedriveJob:
    """Return a job as JSON shows it; ``topic`` is its source, or that of its dead letters."""
    return RedriveJob(
        id=job.id,
        kind=job.kind,
        state=job.state,
        topic=dlq_name(topic),
        total=job.total,
        moved=job.moved,
        unmatched=job.unmatched,
        skipped=job.skipped,
        started_at=format_time_us(job.started_ms * US_PER_MS),
        target=job.target or None,
        ended_at=_time(job.ended_ms) if job.ended_ms else None,
        error=job.error or None,
        by=job.by or None,
        rate=job.rate,
        max_redrives=job.max_redrives,
        filter=write_filter(job.filter),
    )
