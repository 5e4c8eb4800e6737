"""Asking for traces: by id, the latest, by what is known of their messages."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError, TraceNotFoundError
from goqueue.base.ids import Offset, TopicName
from goqueue.base.limits import TRACE_CANDIDATES_MAX, TRACE_PAGE_MAX
from goqueue.core.tracing.ids import TracePlace, hex_of
from goqueue.core.tracing.note import TraceSpan, last_of, spans_of
from goqueue.core.tracing.search import Wanted, find, messages_in, search
from goqueue.core.tracing.timeline import Trace
from goqueue.observability.trace_ring import TraceRing
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.queue.read_offsets import read_offsets

TAIL_SPANS_MAX: Final = 10_000
"""Spans of one look at what is new; a caller that asks too seldom misses some."""


class Tail(NamedTuple):
    """What is new, and where to go on."""

    spans: Sequence[TraceSpan]
    next_place: int


class TraceQuery:
    """Looks through the notes in memory, in a thread where there may be many."""

    def __init__(self, ring: TraceRing, topics: Mapping[TopicName, Topic]) -> None:
        self._ring = ring
        self._topics = topics

    def __repr__(self) -> str:
        return f"<TraceQuery of {self._ring!r}>"

    async def find(self, trace_id: int) -> Trace:
        """Return everything under a trace id, or raise."""
        loop = asyncio.get_running_loop()
        notes, places = self._ring.notes(), self._places()
        trace = await loop.run_in_executor(None, find, notes, trace_id, places)
        if trace is None:
            raise TraceNotFoundError(f"trace not found: {hex_of(trace_id)}")
        return trace

    async def search(self, wanted: Wanted, *, limit: int, key: bytes | None = None) -> list[Trace]:
        """Return traces that are meant, those that began last first."""
        loop = asyncio.get_running_loop()
        notes = self._ring.notes()
        most = limit if key is None else TRACE_CANDIDATES_MAX
        look = partial(search, notes, wanted, limit=min(most, TRACE_CANDIDATES_MAX))
        found = await loop.run_in_executor(None, look)
        if key is not None:
            found = await self._with_key(found, key)
        return found[: min(limit, TRACE_PAGE_MAX)]

    async def message_count(self) -> int:
        """Return how many messages are traced in memory."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, messages_in, self._ring.notes())

    def tail(self, place: int | None) -> Tail:
        """Return the spans that came behind a place; without one, none, and the place of now."""
        if place is None:
            return Tail((), self._ring.added)
        parts: list[list[TraceSpan]] = []
        room = TAIL_SPANS_MAX
        for note in reversed(self._ring.since(place)):
            parts.append(list(spans_of(note, last_of(note.offsets, room))))
            room -= len(parts[-1])
            if room <= 0:
                break
        spans = [span for part in reversed(parts) for span in part]
        return Tail(spans, self._ring.added)

    def _places(self) -> dict[int, TracePlace]:
        return {
            partition.trace.place.tag: partition.trace.place
            for topic in self._topics.values()
            for partition in topic.partitions
            if partition.trace is not None
        }

    async def _with_key(self, traces: Sequence[Trace], key: bytes) -> list[Trace]:
        """Return those traces whose messages have a key; the log knows."""
        wanted: dict[tuple[str, int], BitMap64] = {}
        for trace in traces:
            first = trace.first
            wanted.setdefault((first.topic, first.partition), BitMap64()).add(first.offset)
        found: set[tuple[str, int, int]] = set()
        for (name, number), offsets in wanted.items():
            topic = self._topics.get(TopicName(name))
            if topic is not None and number < len(topic.partitions):
                having = await _offsets_with(topic.partitions[number], offsets, key)
                found.update((name, number, offset) for offset in having)
        return [
            trace
            for trace in traces
            if (trace.first.topic, trace.first.partition, trace.first.offset) in found
        ]


async def _offsets_with(partition: Partition, offsets: BitMap64, key: bytes) -> list[int]:
    """Return which of some messages have a key; those that are gone have none."""
    left, end = offsets, Offset(offsets.max() + 1)
    found: list[int] = []
    while left:
        try:
            plucked = await read_offsets(partition, left, end_offset=end)
        except GoQueueError:
            break
        found += [message.offset for message in plucked.messages if message.key == key]
        left = left.copy()
        left.remove_range(0, plucked.next_offset)
        # Others get their turn, however much of it is in memory.
        await asyncio.sleep(0)
    return found
