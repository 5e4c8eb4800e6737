"""Traces over HTTP: the latest, one by its id, and those that fit a description."""

from http import HTTPStatus
from typing import Any, Final

import msgspec

from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import TRACE_PAGE_MAX
from goqueue.base.units import NS_PER_MS, NS_PER_US, US_PER_MS, parse_duration_ms
from goqueue.service.service import Service
from goqueue.service.traces import STATUSES
from goqueue.transport.http.call import Call
from goqueue.transport.http.operation import Operation, Parameter
from goqueue.transport.http.reply import Response, json_reply
from goqueue.wire.calls import Nothing
from goqueue.wire.http.traces import (
    TraceFilter,
    TraceList,
    TraceResults,
    TraceSpan,
    TraceStats,
    TraceStory,
    TraceSummary,
)
from goqueue.wire.times import format_time_us, parse_moment_us
from goqueue.wire.trace_calls import SearchTraces, SpanEntry, TraceCall, TraceEntry

TAG: Final = "traces"
LIMIT_DEFAULT: Final = 100

_LIMIT: Final = Parameter(
    name="limit", kind="integer", default=LIMIT_DEFAULT, least=1, most=TRACE_PAGE_MAX,
    text=f"Most traces to return; at most {TRACE_PAGE_MAX}.",
)  # fmt: skip
_FILTERS: Final = (
    Parameter(name="topic", text="Where messages are, or were moved to."),
    Parameter(
        name="partition", kind="integer", default=-1, least=-1, text="Of which partition; -1: any."
    ),
    Parameter(
        name="offset", kind="integer", default=-1, least=-1, text="At which offset; -1: at any."
    ),
    Parameter(name="key", text="The key of the messages."),
    Parameter(name="consumer_group", text="A group that had them."),
    Parameter(name="status", choices=STATUSES, text="How they stand."),
    Parameter(name="start", format="date-time", text="Not over before this time (RFC 3339)."),
    Parameter(name="end", format="date-time", text="Begun by this time (RFC 3339)."),
    Parameter(name="min_duration", text='Took so long at least, e.g. "250ms".'),
    Parameter(name="max_duration", text='Took so long at most, e.g. "5s".'),
    _LIMIT,
)


class TraceRoutes:
    """Answers about what happened to messages."""

    def __init__(self, service: Service) -> None:
        self._traces = service.traces

    def operations(self) -> tuple[Operation, ...]:
        """Return what can be asked about traces."""
        bad, absent = HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND
        return (
            Operation(
                method="GET", path="/traces", answer=self.list_traces, tag=TAG, reply=TraceList,
                deed=Deed.SEARCH_TRACES, parameters=(_LIMIT,), errors=(bad,),
            ),
            Operation(
                method="GET", path="/traces/search", answer=self.search_traces, tag=TAG,
                deed=Deed.SEARCH_TRACES, reply=TraceResults, parameters=_FILTERS, errors=(bad,),
            ),
            Operation(
                method="GET", path="/traces/stats", answer=self.show_trace_stats, tag=TAG,
                deed=Deed.DESCRIBE_TRACING, reply=TraceStats,
            ),
            Operation(
                method="GET", path="/traces/{trace_id}", answer=self.find_trace, tag=TAG,
                deed=Deed.FIND_TRACE, reply=TraceStory, errors=(bad, absent),
            ),
        )  # fmt: skip

    async def list_traces(self, call: Call) -> Response:
        """Return the traces of the messages that came last."""
        found = await self._traces.search(call.grant, SearchTraces(_limit(call)))
        traces = [_summary(one) for one in found.traces]
        return json_reply(TraceList(traces=traces, total=len(traces)))

    async def search_traces(self, call: Call) -> Response:
        """Return traces that fit a description, those that began last first."""
        query = _filter(call)
        found = await self._traces.search(call.grant, _wanted(query))
        traces = [_summary(one) for one in found.traces]
        return json_reply(TraceResults(traces=traces, total=len(traces), query=query))

    async def find_trace(self, call: Call) -> Response:
        """Return everything that happened under a trace id, in order."""
        found = await self._traces.find(call.grant, TraceCall(call.path["trace_id"]))
        return json_reply(_story(found))

    async def show_trace_stats(self, call: Call) -> Response:
        """Return how much is traced and kept."""
        stats = await self._traces.stats(call.grant, Nothing())
        return json_reply(TraceStats(**msgspec.structs.asdict(stats)))


def _limit(call: Call) -> int:
    return min(call.number("limit", default=LIMIT_DEFAULT, least=1), TRACE_PAGE_MAX)


def _filter(call: Call) -> TraceFilter:
    partition = call.number("partition", default=-1, least=-1)
    offset = call.number("offset", default=-1, least=-1)
    return TraceFilter(
        topic=call.text("topic"),
        partition=partition if partition >= 0 else None,
        offset=offset if offset >= 0 else None,
        key=call.text("key"),
        consumer_group=call.text("consumer_group"),
        status=call.text("status"),
        start=call.text("start"),
        end=call.text("end"),
        min_duration=call.text("min_duration"),
        max_duration=call.text("max_duration"),
        limit=_limit(call),
    )


def _wanted(query: TraceFilter) -> SearchTraces:
    return SearchTraces(
        limit=query.limit,
        topic=query.topic,
        partition=query.partition,
        offset=query.offset,
        key=None if query.key is None else query.key.encode(),
        group=query.consumer_group,
        status=query.status,
        start_us=_moment("start", query.start),
        end_us=_moment("end", query.end),
        duration_min_us=_duration("min_duration", query.min_duration),
        duration_max_us=_duration("max_duration", query.max_duration),
    )


def _moment(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_moment_us(text)
    except ValueError as error:
        raise InvalidRequestError(f"invalid {name}: {error}") from error


def _duration(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_duration_ms(text) * US_PER_MS
    except ValueError as error:
        raise InvalidRequestError(f"invalid {name}: {error}") from error


def _time(at_ns: int) -> str:
    return format_time_us(at_ns // NS_PER_US)


def _summary(trace: TraceEntry) -> TraceSummary:
    return TraceSummary(**_outline(trace), span_count=trace.span_count)


def _story(trace: TraceEntry) -> TraceStory:
    return TraceStory(**_outline(trace), spans=[_span(span) for span in trace.spans])


def _outline(trace: TraceEntry) -> dict[str, Any]:
    return {
        "trace_id": trace.trace_id,
        "topic": trace.topic,
        "partition": trace.partition,
        "offset": trace.offset,
        "start_time": _time(trace.start_ns),
        "end_time": _time(trace.end_ns),
        "duration_ms": (trace.end_ns - trace.start_ns) / NS_PER_MS,
        "status": trace.status,
    }


def _span(span: SpanEntry) -> TraceSpan:
    return TraceSpan(
        span_id=span.span_id,
        event_type=span.event_type,
        timestamp=_time(span.timestamp_ns),
        topic=span.topic,
        partition=span.partition,
        offset=span.offset,
        parent_span_id=span.parent_span_id,
        consumer_group=span.consumer_group,
        consumer_id=span.consumer_id,
        duration_ns=span.duration_ns,
        error=span.error,
        attributes=span.attributes,
    )
