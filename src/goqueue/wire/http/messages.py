"""Messages as JSON."""

import binascii
from typing import Annotated, Final, Literal

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.wire.http.topics import Int64

BASE64: Final = "base64"
TEXT: Final = "text"

EncodingText = Annotated[
    str,
    msgspec.Meta(
        description='"base64" for any bytes; text without it.', examples=["base64", "text"]
    ),
]


def read_bytes(field: str, text: str, encoding: str | None) -> bytes:
    """Return a part of a message as bytes, or raise naming the field."""
    if encoding is None or encoding == TEXT:
        return text.encode()
    if encoding != BASE64:
        raise InvalidRequestError(f'encoding of {field}: must be "base64" or "text"')
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise InvalidRequestError(f"{field}: invalid base64: {error}") from error


class PublishMessage(msgspec.Struct, frozen=True, gc=False):
    """One message to be published.

    An empty key is no key. Without a partition the key decides, and without a key they take turns.
    ``delay`` ("5s", "1h30m") or ``deliverAt`` hide a message until then; a delayed one goes where
    its key leads it, whatever its partition. ``delay_id`` is a name to cancel it by; where a
    message waits under it, ``on_conflict`` refuses this one or has it take the other's place.
    """

    value: str
    key: str | None = None
    partition: Int64 | None = None
    priority: str | None = None
    headers: dict[str, str | None] | None = None
    encoding: EncodingText | None = None
    key_encoding: EncodingText | None = None
    headers_encoding: EncodingText | None = None
    dedup_id: str | None = None
    timestamp: str | None = None
    delay: str | None = None
    deliver_at: str | None = msgspec.field(default=None, name="deliverAt")
    delay_id: str | None = None
    on_conflict: str | None = None


class PlainMessage(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A message that is a value and perhaps a key, as nearly all are: read in a shorter way."""

    value: str
    key: str | None = None


class PublishPlain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plain messages only; anything else is read as ``Publish``."""

    messages: list[PlainMessage]


class Publish(msgspec.Struct, frozen=True):
    """Messages to be published; each succeeds or fails on its own."""

    messages: list[PublishMessage] | None = None


class PublishResult(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a message went; or -1 and why it was refused."""

    partition: int
    offset: int
    priority: str | None = None
    error: str | None = None
    code: str | None = None
    delayed: bool = False
    deliver_at: str | None = msgspec.field(default=None, name="deliverAt")


class Published(msgspec.Struct, frozen=True):
    """One result per message, in their order, and what an ack means."""

    results: list[PublishResult]
    durability: Annotated[str, msgspec.Meta(examples=["fsync", "os"])]
    replicas: int | msgspec.UnsetType = msgspec.UNSET
    """In a cluster, how many nodes had them when they were acknowledged: the least of all."""


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """One message another node passes on; key and value are base64."""

    value: bytes
    key: bytes | None = None
    partition: Int64


class Forwarded(msgspec.Struct, frozen=True, kw_only=True):
    """Where a forwarded message went."""

    partition: int
    offset: int


class ForwardRefused(msgspec.Struct, frozen=True, kw_only=True):
    """Why a forwarded message went nowhere. ``partition`` is -1 where none could be read."""

    partition: int
    offset: int = -1
    error: str
    status: int
    code: str


class StoredMessage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A message as it was read.

    What is not text comes as base64, and the matching ``encoding`` says so. The value of a
    tombstone is null.
    """

    offset: int
    timestamp: str
    value: str | None
    priority: str
    key: str | None = None
    headers: dict[str, str] | None = None
    encoding: str | None = None
    key_encoding: str | None = None
    headers_encoding: str | None = None
    deliver_at: str | None = None


class HiddenOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that were passed over: their messages wait for their time, or were cancelled.

    ``offsets`` are the first of them.
    """

    count: int
    offsets: list[int]


class MissingRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that were asked for and are not there any more. Half-open."""

    start_offset: int
    end_offset: int
    reason: Literal["expired", "unreadable"]


class MessagePage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Messages in the order of their offsets, and where to go on.

    Reading from an offset that retention has deleted begins at ``earliest``; the offsets left out
    are in ``gaps``. Messages that are not due yet are left out and named in ``hidden``.
    """

    messages: list[StoredMessage]
    next_offset: int
    earliest: int
    latest: int
    gaps: list[MissingRange] | None = None
    hidden: HiddenOffsets | None = None
