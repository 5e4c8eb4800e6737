"""A trace on a terminal: a tree of what happened, with bars where time went."""

from typing import TYPE_CHECKING, Any, Final

from goqueue.base.units import NS_PER_MS, NS_PER_US
from goqueue.cli.message_format import moment
from goqueue.cli.terminal import escape

if TYPE_CHECKING:
    from rich.text import Text

    from goqueue.core.tracing.note import Span
    from goqueue.wire.trace_calls import SpanEntry, TraceEntry

BAR_WIDTH: Final = 24
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
        _note(span),
    ]
    return escape("  ".join(part for part in parts if part))


def draw_timeline(trace: "TraceEntry") -> None:
    """Print a trace: a line for each span, below its parent."""
    # Rich takes a while to load: only those who look at a trace wait for it.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from goqueue.core.tracing.timeline import as_tree  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=False)
    head = Text.assemble(
        (f"trace {trace.trace_id}", "bold"),
        f"  {escape(trace.topic)}/{trace.partition} offset {trace.offset}  ",
        (trace.status, _STATUS_COLOURS.get(trace.status, "cyan")),
        f"  {duration_text(trace.end_ns - trace.start_ns)}",
        f"  began {moment(trace.start_ns // NS_PER_US)}",
    )
    console.print(head, overflow="fold")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("AT", justify="right", no_wrap=True)
    table.add_column("EVENT", no_wrap=True)
    table.add_column("TOOK", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    spans: list[Any] = [_span(span) for span in trace.spans]
    for depth, span in as_tree(spans):
        colour = _COLOURS.get(span.event_type.partition(".")[0], "")
        table.add_row(
            f"+{duration_text(max(span.timestamp_ns - trace.start_ns, 0))}",
            Text("  " * depth + span.event_type, style=colour),
            duration_text(span.duration_ns),
            _bar(span, trace, colour),
            Text(escape(_where(span, trace) + _note(span))),
        )
    console.print(table)


def _span(entry: "SpanEntry") -> "Span":
    import msgspec  # noqa: PLC0415

    from goqueue.core.tracing.note import Span  # noqa: PLC0415

    return Span(**msgspec.structs.asdict(entry))


def _bar(span: "Span", trace: "TraceEntry", colour: str) -> "Text":
    """Return where in the life of the message a span lies."""
    from rich.text import Text  # noqa: PLC0415

    whole = max(trace.end_ns - trace.start_ns, 1)
    first = (span.start_ns - trace.start_ns) * BAR_WIDTH // whole
    last = (span.end_ns - trace.start_ns) * BAR_WIDTH // whole
    first = min(max(first, 0), BAR_WIDTH - 1)
    last = min(max(last, first), BAR_WIDTH - 1)
    mark = "▏" if first == last and not span.duration_ns else "━" * (last - first + 1)
    return Text(" " * first + mark, style=colour)


def _where(span: "Span", trace: "TraceEntry") -> str:
    """Say where it happened, if it is not where the message began."""
    here = (span.topic, span.partition, span.offset)
    if here == (trace.topic, trace.partition, trace.offset):
        return ""
    return f"{span.topic}/{span.partition}:{span.offset} "


def _note(span: "Span | SpanEntry") -> str:
    who = "/".join(one for one in (span.consumer_group, span.consumer_id) if one)
    said = [f"{name}={value}" for name, value in (span.attributes or {}).items()]
    error = f"error: {span.error}" if span.error else ""
    return "  ".join(part for part in (who, *said, error) if part)[:NOTE_CHARACTERS_MAX]
