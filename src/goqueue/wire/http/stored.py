"""From stored messages to JSON: text where it is text, base64 where it is not."""

import binascii
from collections.abc import Mapping, Sequence

from goqueue.core.record.message import PRIORITY_NAMES, Message
from goqueue.wire.http.messages import BASE64, StoredMessage
from goqueue.wire.times import format_time_us


def write_text(message: Message) -> StoredMessage:
    """Write a message whose parts are text, as nearly all are."""
    return write_texts((message,))[0]


def write_texts(messages: Sequence[Message]) -> list[StoredMessage]:
    """Write the messages of a page in one go: a call for each would cost a tenth more."""
    try:
        return [
            StoredMessage(
                message.offset,
                format_time_us(message.timestamp_us),
                None if (value := message.value) is None else value.decode(),
                PRIORITY_NAMES[message.priority],
                key.decode() if (key := message.key) else None,
                _decode(headers) if (headers := message.headers) else None,
                None,
                None,
                None,
                None if (due_us := message.deliver_at_us) is None else format_time_us(due_us),
            )
            for message in messages
        ]
    except UnicodeDecodeError:
        return [
            _write_parts(message, is_base64=not _is_text(message.value or b""))
            for message in messages
        ]


def write_base64(message: Message) -> StoredMessage:
    """Write a message with its value as base64, whatever it is."""
    return _write_parts(message, is_base64=True)


def _write_parts(message: Message, *, is_base64: bool) -> StoredMessage:
    value, key, headers = message.value, message.key or b"", message.headers or {}
    is_key_text = _is_text(key)
    is_headers_text = all(map(_is_text, headers.values()))
    if value is None:
        text, is_base64 = None, False
    else:
        text = _base64(value) if is_base64 else value.decode()
    return StoredMessage(
        message.offset,
        format_time_us(message.timestamp_us),
        text,
        PRIORITY_NAMES[message.priority],
        (key.decode() if is_key_text else _base64(key)) or None,
        (_decode(headers) if is_headers_text else _base64_all(headers)) or None,
        encoding=BASE64 if is_base64 else None,
        key_encoding=None if is_key_text else BASE64,
        headers_encoding=None if is_headers_text else BASE64,
        deliver_at=_due(message),
    )


def _due(message: Message) -> str | None:
    return None if message.deliver_at_us is None else format_time_us(message.deliver_at_us)


def _is_text(part: bytes) -> bool:
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decode(headers: Mapping[str, bytes]) -> dict[str, str]:
    return {name: value.decode() for name, value in headers.items()}


def _base64(part: bytes) -> str:
    return binascii.b2a_base64(part, newline=False).decode()


def _base64_all(headers: Mapping[str, bytes]) -> dict[str, str]:
    return {name: _base64(value) for name, value in headers.items()}
