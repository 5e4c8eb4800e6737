"""What a poll over HTTP answers."""

import msgspec


class PolledMessage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A message leased to the member that polled; its receipt settles it.

    What is not text comes as base64, and the matching ``encoding`` says so. The value of a
    tombstone is null. ``delivery_count`` is 1 for the first delivery.
    """

    offset: int
    timestamp: str
    value: str | None
    receipt_handle: str
    topic: str
    partition: int
    priority: str
    delivery_count: int
    key: str | None = None
    headers: dict[str, str] | None = None
    encoding: str | None = None
    key_encoding: str | None = None
    headers_encoding: str | None = None


class PollReply(msgspec.Struct, frozen=True, kw_only=True):
    """Messages by partition, each list in the order in which they are to be handled.

    The keys are "partition" in a group of one topic and "topic:partition" in others.
    ``next_offset`` lies behind the last message of a partition in the log.
    """

    messages: dict[str, list[PolledMessage]]
    next_offset: dict[str, int]
    generation: int
