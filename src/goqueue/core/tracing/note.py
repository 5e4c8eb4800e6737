"""What is noted when something happens to messages: once for all of them, whatever their number.

Shape: codec. A note is all the broker makes while it works; the spans in it are made when somebody
asks for them or exports them.
"""

from array import array
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from pyroaring import BitMap64

from goqueue.core.offset_sets import each
from goqueue.core.tracing.ids import (
    TracePlace,
    event_span_of,
    hex_of,
    lease_span_of,
    root_span_of,
    trace_id_of,
)
from goqueue.core.tracing.kinds import (
    BEGINNINGS,
    DELIVERIES,
    PARTITIONED,
    PERSISTED,
    PUBLISHED,
    PUBLISHED_SPANS,
    RANKS,
    RECEIVED,
    Parent,
    parent_of,
)
from goqueue.core.tracing.traceparent import TraceParent

OFFSET_BYTES: Final = 8
PACKED_MAX: Final = 32
"""Most messages of a packed note. Nearly every note is about one or two, for which a set takes ten
times as much memory as the numbers in it."""
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
NO_CALLERS: Final[Mapping[int, TraceParent]] = MappingProxyType({})


class Note(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something that happened to messages of one partition at one moment."""

    kind: str
    place: TracePlace
    messages: BitMap64 | bytes
    """The messages it happened to: a set of offsets, or few of them packed."""
    at_ns: int
    began_ns: int = 0
    """When what led to it began, waiting or work; 0 if that is not known."""
    appended_ns: int = 0
    """Of a publish: when it was in the log, not yet synced."""
    group: str = ""
    member: str = ""
    nonce: int = 0
    """The lease it happened under."""
    error: str = ""
    attributes: Mapping[str, Any] = NOTHING
    callers: Mapping[int, TraceParent] = NO_CALLERS
    """The traces of those messages whose senders gave one."""
    origin: tuple[TracePlace, int] | None = None
    """Where the message was before it was moved here."""

    @property
    def offsets(self) -> BitMap64:
        """Return the messages as a set. Not yours to change."""
        found = self.messages
        return found if isinstance(found, BitMap64) else BitMap64(array("Q", found))

    @property
    def count(self) -> int:
        """Return how many spans there are in it."""
        found = self.messages
        count = len(found) if isinstance(found, BitMap64) else len(found) // OFFSET_BYTES
        return count * (PUBLISHED_SPANS if self.kind == PUBLISHED else 1)


class TraceSpan(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Something that happened to one message. Ids are hexadecimal, times nanoseconds."""

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
    attributes: Mapping[str, Any] | None = None

    @property
    def start_ns(self) -> int:
        """Return when it began: what came in begins at its time, all else ends there."""
        if self.event_type == RECEIVED:
            return self.timestamp_ns
        return self.timestamp_ns - (self.duration_ns or 0)

    @property
    def end_ns(self) -> int:
        """Return when it was over."""
        return self.start_ns + (self.duration_ns or 0)


def packed(note: Note) -> Note:
    """Return a note in as little memory as it can be kept in."""
    offsets = note.messages
    if not isinstance(offsets, BitMap64) or len(offsets) > PACKED_MAX:
        return note
    return msgspec.structs.replace(note, messages=offsets.to_array().tobytes())


def last_of(offsets: BitMap64, most: int) -> BitMap64:
    """Return the highest offsets of a set, so many at most."""
    count = len(offsets)
    return offsets if count <= most else offsets[count - max(most, 0) :]


def trace_of(note: Note, offset: int) -> int:
    """Return the trace a message of a note belongs to."""
    caller = note.callers.get(offset)
    return trace_id_of(note.place.tag, offset) if caller is None else caller.trace_id


def spans_of(note: Note, offsets: BitMap64 | None = None) -> Iterator[TraceSpan]:
    """Yield the spans of a note, or of some messages in it."""
    if note.kind == PUBLISHED:
        for part in _parts(note):
            yield from spans_of(part, offsets)
        return
    duration_ns = max(note.at_ns - note.began_ns, 0) if note.began_ns else None
    at_ns = note.began_ns if note.kind == RECEIVED and note.began_ns else note.at_ns
    for offset in each(note.offsets if offsets is None else offsets):
        span, parent = _ids(note, offset)
        yield TraceSpan(
            trace_id=hex_of(trace_of(note, offset)),
            span_id=f"{span:016x}",
            event_type=note.kind,
            timestamp_ns=at_ns,
            topic=note.place.topic,
            partition=note.place.partition,
            offset=offset,
            parent_span_id=None if parent is None else f"{parent:016x}",
            consumer_group=note.group or None,
            consumer_id=note.member or None,
            duration_ns=duration_ns,
            error=note.error or None,
            attributes=note.attributes or None,
        )


def _parts(note: Note) -> Iterator[Note]:
    """Yield the steps of a publish."""
    replace, appended_ns = msgspec.structs.replace, note.appended_ns
    yield replace(note, kind=RECEIVED, attributes=NOTHING)
    yield replace(note, kind=PARTITIONED, at_ns=appended_ns, attributes=NOTHING)
    yield replace(note, kind=PERSISTED, began_ns=appended_ns)


def _ids(note: Note, offset: int) -> tuple[int, int | None]:
    """Return a span and its parent."""
    root = root_span_of(note.place.tag, offset)
    if note.kind in BEGINNINGS:
        caller = note.callers.get(offset)
        return root, caller.span_id or None if caller is not None else None
    if note.kind in DELIVERIES:
        return lease_span_of(note.nonce, offset), root
    span = event_span_of(root, RANKS[note.kind], note.at_ns)
    if parent_of(note.kind) is Parent.LEASE and note.nonce:
        return span, lease_span_of(note.nonce, offset)
    return span, root
