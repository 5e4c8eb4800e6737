"""Settling messages and leasing the next ones over HTTP, in one request."""

from typing import Literal

import msgspec

from goqueue.wire.http.polling import PollReply
from goqueue.wire.http.settling import Duration, Receipts
from goqueue.wire.http.topics import Int64


class NextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What became of messages, and who wants how many of the next.

    ``reason`` goes with nacks and rejections, ``delay`` with nacks, ``extension_seconds`` with
    extensions. Without ``limit`` one message is leased.
    """

    member_id: str | None = None
    generation: Int64 | None = None
    limit: Int64 | None = None
    timeout: Duration | None = None
    encoding: Literal["text", "base64"] | None = None
    ack: Receipts | None = None
    nack: Receipts | None = None
    reject: Receipts | None = None
    extend: Receipts | None = None
    reason: str | None = None
    delay: Duration | None = None
    extension_seconds: Int64 | None = None


class NextError(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt that settled nothing; ``index`` is its place in the list of its verb."""

    verb: str
    index: int
    error: str
    code: str


class NextReply(PollReply, frozen=True, kw_only=True):
    """What a poll answers, how many messages were settled, and which receipts settled nothing."""

    settled: int
    errors: list[NextError]
