"""A trace on a terminal: a tree of what happened, with bars where time went."""

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from goqueue.base.units import NS_PER_MS, NS_PER_US
from goqueue.cli.message_format import moment
from goqueue.cli.terminal import escape

if TYPE_CHECKING:
    from rich.text import Text

    from goqueue.core.tracing.note import TraceSpan
    from goqueue.wire.trace_calls import SpanEntry, TraceEntry

BAR_WIDTH: Final = 24
BAR_WIDTH_MIN: Final = 8
NOTE_WIDTH_MIN: Final = 40
"""Notes in a narrower column would be broken into many lines."""
NOTE_CHARACTERS_MAX: Final = 200
_SECOND_NS: Final = 1_000 * NS_PER_MS
_COLOURS: Final = {
    "publish": "cyan",
    "delay": "yellow",
    "consume": "green",
    "visibility": "magenta",
    "message": "red",
    "dlq": "red",
}
_STATUS_COLOURS: Final = {
    "completed": "green",
    "failed": "red",
    "expired": "red",
    "retrying": "yellow",
    "delayed": "yellow",
}


def duration_text(duration_ns: int | None) -> str:
    """Return a duration with three figures or so."""
    if duration_ns is None:
        return ""
    if duration_ns < NS_PER_MS:
        return f"{duration_ns / NS_PER_US:.0f} µs"
    if duration_ns < _SECOND_NS:
        return f"{duration_ns / NS_PER_MS:.1f} ms"
    return f"{duration_ns / _SECOND_NS:.2f} s"


def span_line(span: "SpanEntry") -> str:
    """Return a span in one line."""
    parts = [
        moment(span.timestamp_ns // NS_PER_US),
        span.trace_id,
        f"{span.topic}/{span.partition}:{span.offset}",
        span.event_type,
        duration_text(span.duration_ns),
        *_notes(span),
    ]
    return escape("  ".join(part for part in parts if part))


def draw_timeline(trace: "TraceEntry", width: int | None) -> None:
    """Print a trace: a line for each span, below its parent.

    Notes stand behind the bars where there is room for them, else on lines of their own. Without a
    width nobody looks at it and every span has one line, however long.
    """
    # Rich takes a while to load: only those who look at a trace wait for it.
    from rich.console import Console  # noqa: PLC0415

    console = Console(highlight=False)
    for line in _lines(trace, width):
        line.rstrip()
        console.print(line, soft_wrap=True)


def _lines(trace: "TraceEntry", width: int | None) -> "Iterator[Text]":
    from rich.text import Text  # noqa: PLC0415

    from goqueue.core.tracing.timeline import as_tree  # noqa: PLC0415

    yield Text(f"trace {trace.trace_id}", style="bold")
    yield Text.assemble(
        f"{escape(trace.topic)}/{trace.partition} offset {trace.offset}  ",
        (trace.status, _STATUS_COLOURS.get(trace.status, "cyan")),
        f"  {duration_text(trace.end_ns - trace.start_ns)}",
        f"  began {moment(trace.start_ns // NS_PER_US)}",
    )
    spans: list[Any] = [_span(span) for span in trace.spans]
    rows = [_row(depth, span, trace) for depth, span in as_tree(spans)]
    at = max([len("AT"), *(len(row.at) for row in rows)])
    event = max([len("EVENT"), *(len(row.event) for row in rows)])
    took = max([len("TOOK"), *(len(row.took) for row in rows)])
    before = at + event + took + 6
    bar = BAR_WIDTH if width is None else min(BAR_WIDTH, max(width - before, BAR_WIDTH_MIN))
    has_room = width is None or width - before - bar - 2 >= NOTE_WIDTH_MIN
    yield Text(f"{'AT':>{at}}  {'EVENT':<{event}}  {'TOOK':>{took}}", style="bold")
    for row in rows:
        line = Text(f"{row.at:>{at}}  ")
        line.append(f"{row.event:<{event}}", style=row.colour)
        line.append(f"  {row.took:>{took}}  ")
        line.append(f"{_bar(row.span, trace, bar):<{bar}}", style=row.colour)
        if has_room:
            indent = before + bar + 2
            first, *rest = _wrapped(row.notes, None if width is None else width - indent) or [""]
            line.append(f"  {first}")
        else:
            assert width is not None, "without a width there is room"
            indent = at + 4 + len(row.event) - len(row.event.lstrip())
            rest = _wrapped(row.notes, width - indent)
        yield line
        yield from (Text(" " * indent + one) for one in rest)


class _Row(NamedTuple):
    at: str
    event: str
    took: str
    notes: list[str]
    colour: str
    span: "TraceSpan"


def _row(depth: int, span: "TraceSpan", trace: "TraceEntry") -> _Row:
    return _Row(
        f"+{duration_text(max(span.timestamp_ns - trace.start_ns, 0))}",
        "  " * depth + span.event_type,
        duration_text(span.duration_ns),
        [escape(one) for one in (*_where(span, trace), *_notes(span))],
        _COLOURS.get(span.event_type.partition(".")[0], ""),
        span,
    )


def _wrapped(notes: list[str], width: int | None) -> list[str]:
    """Return notes as lines; one that fits a line is not broken."""
    text = "  ".join(notes)
    if width is None or len(text) <= width:
        return [text] if text else []
    lines: list[str] = []
    for note in notes:
        if lines and len(lines[-1]) + 2 + len(note) <= width:
            lines[-1] += f"  {note}"
        else:
            lines += textwrap.wrap(note, max(width, NOTE_WIDTH_MIN), break_on_hyphens=False)
    return lines


def _span(entry: "SpanEntry") -> "TraceSpan":
    import msgspec  # noqa: PLC0415

    from goqueue.core.tracing.note import TraceSpan  # noqa: PLC0415

    return TraceSpan(**msgspec.structs.asdict(entry))


def _bar(span: "TraceSpan", trace: "TraceEntry", width: int) -> str:
    """Return where in the life of the message a span lies."""
    whole = max(trace.end_ns - trace.start_ns, 1)
    first = (span.start_ns - trace.start_ns) * width // whole
    last = (span.end_ns - trace.start_ns) * width // whole
    first = min(max(first, 0), width - 1)
    last = min(max(last, first), width - 1)
    mark = "▏" if first == last and not span.duration_ns else "━" * (last - first + 1)
    return " " * first + mark


def _where(span: "TraceSpan", trace: "TraceEntry") -> list[str]:
    """Say where it happened, if it is not where the message began."""
    here = (span.topic, span.partition, span.offset)
    if here == (trace.topic, trace.partition, trace.offset):
        return []
    return [f"{span.topic}/{span.partition}:{span.offset}"]


def _notes(span: "TraceSpan | SpanEntry") -> list[str]:
    who = "/".join(one for one in (span.consumer_group, span.consumer_id) if one)
    said = [f"{name}={value}" for name, value in (span.attributes or {}).items()]
    error = f"error: {span.error}" if span.error else ""
    left = NOTE_CHARACTERS_MAX
    notes: list[str] = []
    for note in filter(None, (who, *said, error)):
        if left > 0:
            notes.append(note[:left])
        left -= len(note)
    return notes
