"""Finding traces among notes: by id, or by what is known of their messages.

Shape: calculator. Messages are chosen first, newest first and within a bound; only their spans are
made. A message that was moved is one story with what it was before.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from pyroaring import BitMap64

from goqueue.base.limits import TRACE_CANDIDATES_MAX, TRACE_SPANS_SHOWN_MAX
from goqueue.core.offset_sets import each
from goqueue.core.tracing.ids import MASK, TracePlace, offset_of
from goqueue.core.tracing.note import Note, TraceSpan, last_of, spans_of
from goqueue.core.tracing.timeline import Trace, assemble


class Home(NamedTuple):
    """One message at its place."""

    place: TracePlace
    offset: int


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What traces must be like. None and nothing mean that any will do; times are nanoseconds."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    group: str | None = None
    status: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    duration_min_ns: int | None = None
    duration_max_ns: int | None = None

    @property
    def is_by_outcome(self) -> bool:
        """Return True if the whole trace must be known to judge it."""
        ends = (self.status, self.start_ns, self.end_ns)
        return any(one is not None for one in (*ends, self.duration_min_ns, self.duration_max_ns))

    def meets(self, note: Note) -> bool:
        """Return True if a note may be about a message that is meant."""
        place = note.place
        return (
            (self.topic is None or place.topic == self.topic)
            and (self.partition is None or place.partition == self.partition)
            and (self.group is None or note.group == self.group)
            and (self.offset is None or self.offset in note.offsets)
        )

    def takes(self, trace: Trace) -> bool:
        """Return True if a trace is meant, as far as its outcome says."""
        return (
            (self.status is None or trace.status == self.status)
            and (self.start_ns is None or trace.end_ns >= self.start_ns)
            and (self.end_ns is None or trace.start_ns <= self.end_ns)
            and (self.duration_min_ns is None or trace.duration_ns >= self.duration_min_ns)
            and (self.duration_max_ns is None or trace.duration_ns <= self.duration_max_ns)
        )


def search(notes: Sequence[Note], wanted: Wanted, *, limit: int) -> list[Trace]:
    """Return traces that are meant, those that began last first."""
    most = TRACE_CANDIDATES_MAX if wanted.is_by_outcome else limit
    homes = _candidates(notes, wanted, most=min(max(most, 1), TRACE_CANDIDATES_MAX))
    stories = _stories(notes, homes)
    found = [trace for trace in map(assemble, stories) if trace is not None]
    found = [trace for trace in found if wanted.takes(trace)]
    found.sort(key=lambda trace: (trace.start_ns, trace.first.offset), reverse=True)
    return found[:limit]


def find(notes: Sequence[Note], trace_id: int, places: Mapping[int, TracePlace]) -> Trace | None:
    """Return everything under a trace id; ``places`` are the partitions by their tags."""
    homes: dict[Home, None] = {}
    place = places.get(trace_id >> 64 & MASK)
    if place is not None:
        homes[Home(place, offset_of(trace_id))] = None
    for note in notes:
        for offset, caller in note.callers.items():
            if caller.trace_id == trace_id:
                homes[Home(note.place, offset)] = None
    spans = [span for story in _stories(notes, homes) for span in story]
    text = f"{trace_id:032x}"
    # A partition's tag may lead to a message that has a trace of its sender's.
    own = [span for span in spans if span.trace_id == text]
    trace = assemble(own)
    if trace is None or len(own) <= TRACE_SPANS_SHOWN_MAX:
        return trace
    return trace._replace(spans=trace.spans[:TRACE_SPANS_SHOWN_MAX])


def messages_in(notes: Iterable[Note]) -> int:
    """Return how many messages notes are about."""
    by_place: dict[int, BitMap64] = {}
    for note in notes:
        known = by_place.setdefault(note.place.tag, BitMap64())
        known |= note.offsets
    return sum(map(len, by_place.values()))


def _candidates(notes: Sequence[Note], wanted: Wanted, *, most: int) -> dict[Home, None]:
    homes: dict[Home, None] = {}
    for note in reversed(notes):
        if not wanted.meets(note):
            continue
        offsets: Iterable[int] = (wanted.offset,) if wanted.offset is not None else ()
        if wanted.offset is None:
            offsets = reversed(each(last_of(note.offsets, most)))
        for offset in offsets:
            homes[Home(note.place, offset)] = None
        if len(homes) >= most:
            break
    return homes


def _stories(notes: Sequence[Note], homes: Mapping[Home, None]) -> list[list[TraceSpan]]:
    """Return the spans of messages, with those of what they were before and became later."""
    origins = _origins(notes)
    wanted: dict[int, BitMap64] = {}
    roots = {_first(home, origins) for home in homes}
    for home in (*roots, *(home for home in origins if _first(home, origins) in roots)):
        wanted.setdefault(home.place.tag, BitMap64()).add(home.offset)
    stories: dict[tuple[Home, str], list[TraceSpan]] = {}
    for note in notes:
        offsets = wanted.get(note.place.tag)
        here = note.offsets & offsets if offsets is not None else None
        for span in spans_of(note, here) if here else ():
            root = _first(Home(note.place, span.offset), origins)
            stories.setdefault((root, span.trace_id), []).append(span)
    return list(stories.values())


def _origins(notes: Iterable[Note]) -> dict[Home, Home]:
    """Return what moved messages were before."""
    return {
        Home(note.place, offset): Home(*note.origin)
        for note in notes
        if note.origin is not None
        for offset in each(note.offsets)
    }


def _first(home: Home, origins: Mapping[Home, Home]) -> Home:
    """Return what a message was at first. Offsets only grow, so the way back has an end."""
    for _ in range(len(origins) + 1):
        before = origins.get(home)
        if before is None:
            return home
        home = before
    return home
