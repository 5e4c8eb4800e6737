"""Traces as JSON."""

from typing import Annotated, Any

import msgspec

Status = Annotated[
    str,
    msgspec.Meta(examples=["in_progress", "completed", "failed", "retrying", "delayed", "expired"]),
]


class TraceSpan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a message. ``duration_ns`` is the work or the wait behind it."""

    span_id: str
    event_type: Annotated[str, msgspec.Meta(examples=["publish.received", "consume.acked"])]
    timestamp: str
    topic: str
    partition: int
    offset: int
    parent_span_id: str | None = None
    consumer_group: str | None = None
    consumer_id: str | None = None
    duration_ns: int | None = None
    error: str | None = None
    attributes: dict[str, Any] | None = None


class TraceOutline(msgspec.Struct, frozen=True, kw_only=True):
    """A message: where it began, how it stands and how long it took until the last event."""

    trace_id: str
    topic: str
    partition: int
    offset: int
    start_time: str
    end_time: str
    duration_ms: float
    status: Status


class TraceSummary(TraceOutline, frozen=True, kw_only=True):
    """A message, and how much happened to it."""

    span_count: int


class TraceStory(TraceOutline, frozen=True, kw_only=True):
    """A message with everything that happened to it, in order."""

    spans: list[TraceSpan]


class TraceList(msgspec.Struct, frozen=True, kw_only=True):
    """Traces, those that began last first."""

    traces: list[TraceSummary]
    total: int


class TraceFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was looked for."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    key: str | None = None
    consumer_group: str | None = None
    status: str | None = None
    start: str | None = None
    end: str | None = None
    min_duration: str | None = None
    max_duration: str | None = None
    limit: int = -1


class TraceResults(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and what was looked for."""

    traces: list[TraceSummary]
    total: int
    query: TraceFilter


class TraceStats(msgspec.Struct, frozen=True, kw_only=True):
    """How much is traced and kept."""

    enabled: bool
    spans_in_buffer: int
    buffer_capacity: int
    traces_indexed: int
    sampling_rate: float
    exporters_enabled: list[str]
