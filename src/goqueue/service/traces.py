"""Traces: what happened to messages."""

import msgspec

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError, TraceNotFoundError
from goqueue.base.units import NS_PER_US
from goqueue.core.tracing.ids import parse_trace_id
from goqueue.core.tracing.kinds import STATUSES
from goqueue.core.tracing.note import TraceSpan
from goqueue.core.tracing.search import Wanted
from goqueue.core.tracing.timeline import Trace
from goqueue.runtime.broker import Broker
from goqueue.service.gate import Gate
from goqueue.service.verb import caller_verb, verb
from goqueue.wire import calls
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

__all__ = ["STATUSES", "Traces"]


class Traces:
    """What can be asked about traces."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._gate = gate
        self._tracing = broker.tracing

    @caller_verb(Deed.FIND_TRACE)
    async def find(self, caller: Caller, call: TraceCall) -> TraceEntry:
        """Return everything that happened under a trace id, in order."""
        trace_id = parse_trace_id(call.trace_id)
        if trace_id is None:
            raise InvalidRequestError("invalid trace ID format")
        trace = self._seen(caller, await self._tracing.query.find(trace_id))
        if trace is None:
            raise TraceNotFoundError("trace not found")
        return _entry(trace, spans=[_span(span) for span in trace.spans])

    @caller_verb(Deed.SEARCH_TRACES)
    async def search(self, caller: Caller, call: SearchTraces) -> TraceList:
        """Return traces that fit a description, those that began last first."""
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
        seen = [one for trace in found if (one := self._seen(caller, trace)) is not None]
        return TraceList([_entry(trace, spans=[]) for trace in seen])

    @caller_verb(Deed.TAIL_TRACES)
    async def tail(self, caller: Caller, call: TailTraces) -> TraceTail:
        """Return the spans behind a place."""
        tail = self._tracing.query.tail(call.place)
        seen = self._gate.visible(caller, Deed.FETCH, tail.spans, lambda span: span.topic)
        return TraceTail(list(map(_span, seen)), tail.next_place)

    def _seen(self, caller: Caller, trace: Trace) -> Trace | None:
        """Return what a caller may see of a trace: what happened in topics that it may read."""
        seen = self._gate.visible(caller, Deed.FETCH, trace.spans, lambda span: span.topic)
        if len(seen) == len(trace.spans):
            return trace
        return trace._replace(spans=seen) if seen else None

    @verb(Deed.DESCRIBE_TRACING)
    async def stats(self, _: calls.Nothing) -> TraceStats:
        """Return how much is traced and kept."""
        tracing = self._tracing
        ring = tracing.tracer.ring
        return TraceStats(
            tracing.is_enabled,
            ring.spans,
            ring.spans_max,
            await tracing.query.message_count(),
            tracing.rate,
            list(tracing.exporters),
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


def _span(span: TraceSpan) -> SpanEntry:
    fields = msgspec.structs.asdict(span)
    fields["attributes"] = dict(span.attributes) if span.attributes else None
    return SpanEntry(**fields)
