"""The story of one message: its spans in order, how it stands, and how long it took.

Shape: calculator.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from goqueue.core.tracing.kinds import IN_PROGRESS, QUIET, RANKS, STATUS_BY_KIND
from goqueue.core.tracing.note import TraceSpan


class Trace(NamedTuple):
    """Everything known of a message, from the first span to the last."""

    trace_id: str
    spans: Sequence[TraceSpan]
    status: str

    @property
    def first(self) -> TraceSpan:
        """Return where it begins."""
        return self.spans[0]

    @property
    def start_ns(self) -> int:
        """Return when it began."""
        return self.first.timestamp_ns

    @property
    def end_ns(self) -> int:
        """Return when the last thing happened."""
        return max(span.end_ns for span in self.spans)

    @property
    def duration_ns(self) -> int:
        """Return how long it took until now."""
        return self.end_ns - self.start_ns


def assemble(spans: Iterable[TraceSpan]) -> Trace | None:
    """Put spans of one trace in order; None if there are none."""
    line = sorted(spans, key=lambda span: (span.timestamp_ns, RANKS[span.event_type]))
    if not line:
        return None
    return Trace(line[0].trace_id, line, status_of(line))


def status_of(line: Sequence[TraceSpan]) -> str:
    """Return how a message stands: as its last event that matters says."""
    for span in reversed(line):
        if span.event_type not in QUIET:
            return STATUS_BY_KIND[span.event_type]
    return IN_PROGRESS


def as_tree(line: Sequence[TraceSpan]) -> Iterator[tuple[int, TraceSpan]]:
    """Yield spans with their depth: each behind its parent, siblings by time.

    A span whose parent is elsewhere, with the sender or no longer remembered, is at the top.
    """
    known = {span.span_id for span in line}
    children: dict[str, list[TraceSpan]] = {}
    tops: list[TraceSpan] = []
    for span in line:
        parent = span.parent_span_id
        if parent is None or parent not in known or parent == span.span_id:
            tops.append(span)
        else:
            children.setdefault(parent, []).append(span)
    seen: set[str] = set()
    for top in tops:
        yield from _descend(top, children, seen)


def _descend(
    top: TraceSpan, children: Mapping[str, Sequence[TraceSpan]], seen: set[str]
) -> Iterator[tuple[int, TraceSpan]]:
    stack = [(0, top)]
    while stack:
        depth, span = stack.pop()
        yield depth, span
        if span.span_id not in seen:
            seen.add(span.span_id)
            below = children.get(span.span_id, ())
            stack += [(depth + 1, child) for child in reversed(below)]
