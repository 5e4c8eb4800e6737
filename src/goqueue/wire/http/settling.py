"""Settling messages over HTTP: acks, nacks, rejections, extensions, one by one and in batches."""

from typing import Annotated, Literal

import msgspec

from goqueue.base.limits import HTTP_SETTLE_RECEIPTS_MAX
from goqueue.wire.http.topics import Int64

Duration = Annotated[str, msgspec.Meta(examples=["5s", "1h30m"])]
Receipts = Annotated[list[str], msgspec.Meta(max_length=HTTP_SETTLE_RECEIPTS_MAX)]


class Ack(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of a message that is done."""

    receipt_handle: str | None = None


class Nack(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of a message that failed; ``delay`` takes the place of the group's backoff."""

    receipt_handle: str | None = None
    reason: str | None = None
    delay: Duration | None = None


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of a message that will never succeed."""

    receipt_handle: str | None = None
    reason: str | None = None


class Extend(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt of a message that needs more time, and how much from now on."""

    receipt_handle: str | None = None
    extension_seconds: Int64 | None = None
    timeout: Duration | None = None


class Acked(msgspec.Struct, frozen=True, kw_only=True):
    """The message is settled for good.

    ``offset_advanced`` tells whether the group's committed offset moved by it. ``in_flight_count``
    are the messages of the partition that the group holds leased.
    """

    success: bool = True
    topic: str
    partition: int
    offset: int
    committed_offset: int
    offset_advanced: bool
    in_flight_count: int


class Nacked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The message is delivered again at ``next_visible_at``; or it has become a dead letter."""

    success: Literal[True]
    action: Literal["requeued", "dlq"]
    topic: str
    partition: int
    offset: int
    delivery_count: int
    next_visible_at: str | None = None
    dlq_topic: str | None = None


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """The message has become a dead letter."""

    success: bool = True
    action: Literal["rejected"] = "rejected"
    topic: str
    partition: int
    offset: int
    dlq_topic: str
    reason: str


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    """The message is to be settled before ``new_deadline``."""

    success: bool = True
    new_deadline: str
    extended_by: str


class ReceiptAndReason(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a batch; what is absent is taken from the batch."""

    receipt_handle: str | None = None
    reason: str | None = None
    delay: Duration | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Many receipts at once, as ``receipts`` or, with words to each, as ``messages``."""

    receipts: Receipts | None = None
    messages: (
        Annotated[list[ReceiptAndReason], msgspec.Meta(max_length=HTTP_SETTLE_RECEIPTS_MAX)] | None
    ) = None
    reason: str | None = None
    delay: Duration | None = None
    extension_seconds: Int64 | None = None
    timeout: Duration | None = None


class BatchError(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt that settled nothing; ``index`` is its place in the request."""

    index: int
    error: str
    code: str


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the group is in a partition the batch touched."""

    group: str
    topic: str
    partition: int
    committed_offset: int
    in_flight_count: int


class BatchSettled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a batch: the status is 200 even when some receipts are in ``errors``."""

    success: bool
    settled: int
    errors: list[BatchError]
    progress: list[BatchProgress]
    requeued: int | None = None
    dlq: int | None = None
    new_deadline: str | None = None
