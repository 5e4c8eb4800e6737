"""The native operations on traces."""

from collections.abc import Callable
from typing import Any

import msgspec

from goqueue.base.errors import InvalidRequestError
from goqueue.base.units import NS_PER_US
from goqueue.core.tracing.ids import parse_trace_id
from goqueue.core.tracing.kinds import STATUSES
from goqueue.core.tracing.note import Span
from goqueue.core.tracing.search import Wanted
from goqueue.core.tracing.timeline import Trace
from goqueue.runtime.broker import Broker
from goqueue.transport.native.reply import Beside, Reply
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from goqueue.wire.trace_calls import (
    SearchTraces,
    SpanEntry,
    TailTraces,
    TraceCall,
    TraceEntry,
    TraceList,
    TraceStats,
    TraceTail,
)


class TraceOperations:
    """Translates requests about traces into broker calls."""

    def __init__(self, broker: Broker) -> None:
        self._tracing = broker.tracing

    def register(self, add: Callable[[Operation, type[calls.Call], Any], None]) -> None:
        """Add every operation to a dispatch."""
        add(Operation.FIND_TRACE, TraceCall, self._find)
        add(Operation.SEARCH_TRACES, SearchTraces, self._search)
        add(Operation.TAIL_TRACES, TailTraces, self._tail)
        add(Operation.TRACE_STATS, calls.Nothing, self._stats)

    async def _find(self, call: TraceCall, _: Beside) -> Reply:
        trace_id = parse_trace_id(call.trace_id)
        if trace_id is None:
            raise InvalidRequestError("invalid trace ID format")
        trace = await self._tracing.query.find(trace_id)
        return Reply(_entry(trace, spans=[_span(span) for span in trace.spans]))

    async def _search(self, call: SearchTraces, _: Beside) -> Reply:
        if call.status is not None and call.status not in STATUSES:
            raise InvalidRequestError(f"status: must be one of {', '.join(STATUSES)}")
        wanted = Wanted(
            topic=call.topic,
            partition=call.partition,
            offset=call.offset,
            group=call.group,
            status=call.status,
            start_ns=_ns(call.start_us),
            end_ns=_ns(call.end_us),
            duration_min_ns=_ns(call.duration_min_us),
            duration_max_ns=_ns(call.duration_max_us),
        )
        found = await self._tracing.query.search(wanted, limit=call.limit, key=call.key)
        return Reply(TraceList([_entry(trace, spans=[]) for trace in found]))

    async def _tail(self, call: TailTraces, _: Beside) -> Reply:
        tail = self._tracing.query.tail(call.place)
        return Reply(TraceTail([_span(span) for span in tail.spans], tail.next_place))

    async def _stats(self, _: calls.Nothing, __: Beside) -> Reply:
        tracing = self._tracing
        ring = tracing.tracer.ring
        messages = await tracing.query.message_count()
        return Reply(
            TraceStats(
                tracing.is_enabled,
                ring.spans,
                ring.spans_max,
                messages,
                tracing.rate,
                list(tracing.exporters),
            )
        )


def _ns(time_us: int | None) -> int | None:
    return None if time_us is None else time_us * NS_PER_US


def _entry(trace: Trace, *, spans: list[SpanEntry]) -> TraceEntry:
    first = trace.first
    return TraceEntry(
        trace.trace_id,
        first.topic,
        first.partition,
        first.offset,
        trace.start_ns,
        trace.end_ns,
        trace.status,
        len(trace.spans),
        spans,
    )


def _span(span: Span) -> SpanEntry:
    fields = msgspec.structs.asdict(span)
    fields["attributes"] = dict(span.attributes) if span.attributes else None
    return SpanEntry(**fields)
