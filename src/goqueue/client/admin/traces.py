"""What people ask of traces: one by its id, those that fit a description, what is new."""

from datetime import datetime

from goqueue.base.units import DAY_MS, US_PER_MS
from goqueue.client.admin.calls import AsyncCalls
from goqueue.client.consumer.delivery import Duration, duration_ms
from goqueue.client.protocol.positions import microseconds_of
from goqueue.wire import calls
from goqueue.wire.packet import Operation
from goqueue.wire.trace_calls import (
    SearchTraces,
    TailTraces,
    TraceCall,
    TraceEntry,
    TraceList,
    TraceStats,
    TraceTail,
)

_DURATION_MS_MAX = 100 * 365 * DAY_MS


class AsyncTraces(AsyncCalls):
    """The calls on traces."""

    async def find_trace(self, trace_id: str) -> TraceEntry:
        """Return everything that happened under a trace id (32 hexadecimal digits), in order."""
        return await self._call(Operation.FIND_TRACE, TraceCall(trace_id), TraceEntry)

    async def search_traces(  # noqa: PLR0913 - each is a choice of its own
        self,
        *,
        limit: int = 100,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: bytes | None = None,
        group: str | None = None,
        status: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        min_duration: Duration | None = None,
        max_duration: Duration | None = None,
    ) -> list[TraceEntry]:
        """Return traces without their spans, those that began last first.

        ``start`` leaves out what was over before, ``end`` what began later.
        """
        header = SearchTraces(
            limit,
            topic,
            partition,
            offset,
            key,
            group,
            status,
            None if start is None else microseconds_of(start),
            None if end is None else microseconds_of(end),
            _duration_us("min_duration", min_duration),
            _duration_us("max_duration", max_duration),
        )
        return (await self._call(Operation.SEARCH_TRACES, header, TraceList)).traces

    async def tail_traces(self, place: int | None = None) -> TraceTail:
        """Return the spans behind a place and where to go on; without one, the place of now."""
        return await self._call(Operation.TAIL_TRACES, TailTraces(place), TraceTail)

    async def trace_stats(self) -> TraceStats:
        """Return how much is traced and kept."""
        return await self._call(Operation.TRACE_STATS, calls.Nothing(), TraceStats)


def _duration_us(name: str, value: Duration | None) -> int | None:
    if value is None:
        return None
    return duration_ms(value, name=name, most_ms=_DURATION_MS_MAX) * US_PER_MS
