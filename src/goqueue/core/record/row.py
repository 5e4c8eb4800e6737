"""The row frame: one message, byte for byte the storage contract.

Shape: codec. What a batch keeps in its fields, a row keeps in headers of the broker's own.
"""

import struct
from collections.abc import Sequence as Many
from typing import Final

import msgspec

from goqueue.base.errors import CorruptFrameError, InvalidRequestError, TooLargeError
from goqueue.base.ids import Epoch, Offset, PartitionId, ProducerId, Sequence, TopicName
from goqueue.base.limits import FRAME_HEADER_BYTES, HEADERS_COUNT_MAX
from goqueue.base.units import NS_PER_US
from goqueue.core.record.frame import HAS_HEADERS, TOMBSTONE, Buffer, FrameHeader, encode_frame
from goqueue.core.record.headers import (
    DEDUP_ID,
    DELIVER_AT,
    ORIGIN,
    PRODUCER,
    PRODUCER_FIELDS,
    RESERVED_PREFIX,
    TRACE,
    U64,
    decode_headers,
    encode_headers,
)
from goqueue.core.record.marks import NO, VALUE, YES
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.core.tracing.traceparent import (
    HEADER,
    TraceParent,
    format_traceparent,
    parse_traceparent,
    unpack_parent,
)


def encode_row(
    draft: Draft,
    *,
    offset: Offset = Offset(0),  # noqa: B008 - a NewType of an int
    stamp: ProducerStamp = NO_STAMP,
    is_stored: bool = False,
) -> bytes:
    """Turn one message into a frame; one for a log says its flags where they are checked."""
    headers = dict(draft.headers) if draft.headers else {}
    if stamp.is_idempotent:
        headers[PRODUCER] = PRODUCER_FIELDS.pack(stamp.producer_id, stamp.epoch, stamp.sequence)
    if draft.deliver_at_us is not None:
        headers[DELIVER_AT] = U64.pack(draft.deliver_at_us)
    if draft.dedup_id is not None:
        headers[DEDUP_ID] = draft.dedup_id
    if draft.key is not None and not draft.key:
        # The contract cannot tell an empty key from none; a header of ours can.
        headers[_EMPTY_KEY] = b""
    if is_stored and not draft.value:
        headers[VALUE] = NO if draft.value is None else YES
    flags = (HAS_HEADERS if headers else 0) | (TOMBSTONE if draft.value is None else 0)
    return encode_frame(
        flags=flags,
        offset=offset,
        timestamp_ns=draft.timestamp_us * NS_PER_US,
        key=draft.key or b"",
        value=draft.value or b"",
        headers=encode_headers(headers),
        priority=draft.priority,
    )


_EMPTY_KEY: Final = "__empty_key"
_OWN_HEADERS: Final = frozenset({PRODUCER, DELIVER_AT, DEDUP_ID, _EMPTY_KEY})


class Row:
    """A row frame taken apart."""

    __slots__ = ("_frame", "_headers", "header")

    def __init__(self, header: FrameHeader, frame: Buffer) -> None:
        self.header = header
        self._frame = frame
        value_end = FRAME_HEADER_BYTES + header.key_size + header.value_size
        self._headers = decode_headers(memoryview(frame)[value_end:])

    @property
    def key(self) -> bytes | None:
        """Return what messages are put together by."""
        size = self.header.key_size
        if not size and _EMPTY_KEY not in self._headers:
            return None
        return bytes(self._frame[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + size])

    @property
    def value(self) -> bytes | None:
        """Return the content, or None for a tombstone."""
        if self.header.flags & TOMBSTONE:
            return None
        start = FRAME_HEADER_BYTES + self.header.key_size
        return bytes(self._frame[start : start + self.header.value_size])

    @property
    def headers(self) -> dict[str, bytes] | None:
        """Return the user's headers, or None without any."""
        own = {k: v for k, v in self._headers.items() if not k.startswith(RESERVED_PREFIX)}
        return own or None

    def marked(self) -> bytes:
        """Return a frame without bytes of value as one that says whether it has a value."""
        headers = {name: value for name, value in self._headers.items() if name != VALUE}
        headers[VALUE] = NO if self.value is None else YES
        header = self.header
        return encode_frame(
            flags=header.flags | HAS_HEADERS,
            offset=header.offset,
            timestamp_ns=header.timestamp_ns,
            key=self._frame[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + header.key_size],
            headers=encode_headers(headers),
            priority=header.priority,
        )

    def check_headers(self) -> None:
        """Refuse headers of a stranger that take the broker's names, or too many."""
        if len(self._headers) > HEADERS_COUNT_MAX:
            raise TooLargeError(f"headers: more than {HEADERS_COUNT_MAX} on one message")
        for name in self._headers:
            if name.startswith(RESERVED_PREFIX) and name not in _OWN_HEADERS:
                raise InvalidRequestError(
                    f"headers: names beginning with '__' are reserved: {name!r}"
                )

    @property
    def timestamp_us(self) -> int:
        """Return the message's time."""
        return self.header.timestamp_ns // NS_PER_US

    @property
    def dedup_id(self) -> bytes | None:
        """Return the client-chosen identity of the message."""
        return self._headers.get(DEDUP_ID)

    @property
    def origin(self) -> bytes | None:
        """Return which message this was before it was moved."""
        return self._headers.get(ORIGIN)

    @property
    def caller(self) -> TraceParent | None:
        """Return the trace the message had before it was moved, or else that of its sender."""
        block = self._headers.get(TRACE)
        if block is not None:
            return unpack_parent(block)
        text = self._headers.get(HEADER)
        return None if text is None else parse_traceparent(text)

    @property
    def headers_with_trace(self) -> dict[str, bytes] | None:
        """Return the user's headers, and that of its trace for a message that was moved."""
        moved = self.caller if TRACE in self._headers else None
        if moved is None or HEADER in self._headers:
            return self.headers
        return {**(self.headers or {}), HEADER: format_traceparent(moved).encode()}

    @property
    def deliver_at_us(self) -> int | None:
        """Return the time before which the message is hidden."""
        block = self._headers.get(DELIVER_AT)
        return None if block is None else int(_unpack(U64, block)[0])

    @property
    def stamp(self) -> ProducerStamp:
        """Return who sent the message."""
        block = self._headers.get(PRODUCER)
        if block is None:
            return NO_STAMP
        producer_id, epoch, sequence = _unpack(PRODUCER_FIELDS, block)
        return ProducerStamp(ProducerId(producer_id), Epoch(epoch), Sequence(sequence))

    def draft(self) -> Draft:
        """Return the message as it came in."""
        return Draft(
            value=self.value,
            key=self.key,
            timestamp_us=self.timestamp_us,
            headers=self.headers,
            priority=self.header.priority,
            deliver_at_us=self.deliver_at_us,
            dedup_id=self.dedup_id,
        )

    def message(self, topic: TopicName, partition: PartitionId) -> Message:
        """Return the message as readers see it."""
        return Message(
            topic,
            partition,
            self.header.offset,
            self.timestamp_us,
            self.key,
            self.value,
            self.headers,
            self.header.priority,
            self.deliver_at_us,
        )


def _unpack(layout: struct.Struct, block: bytes) -> tuple[int, ...]:
    if len(block) != layout.size:
        raise CorruptFrameError(f"a header of the broker's own has {len(block)} bytes")
    return layout.unpack(block)


class PackedRows(msgspec.Struct, frozen=True, gc=False):
    """A few messages, each its own frame."""

    drafts: Many[Draft]

    @property
    def rows(self) -> int:
        """Return how many messages there are."""
        return len(self.drafts)

    def frame(self, stamp: ProducerStamp) -> bytes:
        """Return the frames under a producer's stamp."""
        return b"".join(
            encode_row(draft, stamp=stamp.after(row)) for row, draft in enumerate(self.drafts)
        )
