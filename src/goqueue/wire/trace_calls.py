"""The headers of requests about traces.

Structs travel as msgpack arrays: a field may be added at the end with a default, never removed.
"""

from typing import Annotated, Any

import msgspec

from goqueue.base.limits import KEY_BYTES_MAX, TRACE_PAGE_MAX
from goqueue.wire.calls import Call, Name, Natural, Number, Text


class TraceCall(Call, frozen=True):
    """Name a trace by its 32 hexadecimal digits."""

    trace_id: Text


class SearchTraces(Call, frozen=True):
    """Ask for traces; what is None does not matter."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=TRACE_PAGE_MAX)] = 100
    topic: Name | None = None
    partition: Number | None = None
    offset: Natural | None = None
    key: Annotated[bytes, msgspec.Meta(max_length=KEY_BYTES_MAX)] | None = None
    group: Name | None = None
    status: Text | None = None
    start_us: Natural | None = None
    end_us: Natural | None = None
    duration_min_us: Natural | None = None
    duration_max_us: Natural | None = None


class TailTraces(Call, frozen=True):
    """Ask for the spans behind a place; without one, for the place of now."""

    place: Natural | None = None


class SpanEntry(Call, frozen=True):
    """Something that happened to a message."""

    trace_id: str
    span_id: str
    event_type: str
    timestamp_ns: int
    topic: str
    partition: int
    offset: int
    parent_span_id: str | None = None
    consumer_group: str | None = None
    consumer_id: str | None = None
    duration_ns: int | None = None
    error: str | None = None
    attributes: dict[str, Any] | None = None


class TraceEntry(Call, frozen=True):
    """A message: where it began and how it stands. A list has no spans, only their number."""

    trace_id: str
    topic: str
    partition: int
    offset: int
    start_ns: int
    end_ns: int
    status: str
    span_count: int
    spans: list[SpanEntry] = msgspec.field(default_factory=list)


class TraceList(Call, frozen=True):
    """Traces, those that began last first."""

    traces: list[TraceEntry]


class TraceTail(Call, frozen=True):
    """New spans, and where to go on."""

    spans: list[SpanEntry]
    next_place: int


class TraceStats(Call, frozen=True):
    """How much is traced and kept."""

    enabled: bool
    spans_in_buffer: int
    buffer_capacity: int
    traces_indexed: int
    sampling_rate: float
    exporters_enabled: list[str]
