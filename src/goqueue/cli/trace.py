"""``goqueue trace``: what happened to a message, step by step."""

import re
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from typer.core import TyperGroup

from goqueue.base.errors import InvalidRequestError
from goqueue.base.limits import TRACE_PAGE_MAX
from goqueue.base.units import NS_PER_MS, NS_PER_US, SECOND_MS
from goqueue.cli.failure import usage
from goqueue.cli.message_format import moment
from goqueue.cli.output import Grid, print_data, print_pairs, remark
from goqueue.cli.position import read_time
from goqueue.cli.session import Session, add_common_options, command, read_timeout_ms
from goqueue.cli.terminal import looked_at_width
from goqueue.cli.trace_timeline import draw_timeline, duration_text, span_line
from goqueue.wire.times import format_time_us

if TYPE_CHECKING:
    from goqueue.wire.trace_calls import SpanEntry, TraceEntry

INTERVAL_MS_MIN: Final = 50
_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}")

TraceId = Annotated[str, typer.Argument(metavar="ID", help="The trace id, 32 hex digits.")]
Limit = Annotated[
    int, typer.Option("-n", "--limit", min=1, max=TRACE_PAGE_MAX, help="Most to show.")
]
Topic = Annotated[str | None, typer.Option("--topic", help="Messages of this topic.")]
Partition = Annotated[int, typer.Option("--partition", help="Of this partition; -1: of any.")]
Offset = Annotated[int, typer.Option("--offset", help="At this offset; -1: at any.")]
Key = Annotated[str | None, typer.Option("--key", help="With this key.")]
Group = Annotated[
    str | None, typer.Option("--consumer-group", "--group", help="That this group had.")
]
Status = Annotated[
    str | None,
    typer.Option("--status", help="in_progress, completed, failed, retrying, delayed or expired."),
]
Start = Annotated[
    str | None, typer.Option("--start", help="Not over before, e.g. 2026-01-31T12:00:00Z or -1h.")
]
End = Annotated[str | None, typer.Option("--end", help="Begun by this time.")]
Least = Annotated[
    str | None, typer.Option("--min-duration", help='Took so long at least, e.g. "250ms".')
]
Most = Annotated[
    str | None, typer.Option("--max-duration", help='Took so long at most, e.g. "5s".')
]
Interval = Annotated[str, typer.Option("-i", "--interval", help="Time between two looks.")]
Once = Annotated[bool, typer.Option("--once", help="Look once and end; for scripts.")]


class _TraceGroup(TyperGroup):
    """Takes ``trace ID`` for ``trace get ID``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - a type of click
        for place, word in enumerate(args):
            if word in self.commands:
                break
            if _TRACE_ID.fullmatch(word):
                args = [*args[:place], "get", *args[place:]]
                break
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def register(app: typer.Typer) -> None:
    """Add the commands."""
    trace = typer.Typer(cls=_TraceGroup)
    add_common_options(
        trace,
        "Traces: what happened to a message, step by step.\n\n`goqueue trace ID` is short for"
        " `goqueue trace get ID`.",
    )
    command(trace, "list")(list_traces)
    command(trace, "get")(get)
    command(trace, "search")(search)
    command(trace, "tail")(tail)
    command(trace, "stats")(stats)
    app.add_typer(trace, name="trace")


def list_traces(session: Session, *, limit: Limit = 100) -> None:
    """List the messages that were traced last."""
    with session.connect() as client:
        found = client.search_traces(limit=limit)
    _show(session, found)


def get(session: Session, id: TraceId) -> None:  # noqa: A002
    """Draw the timeline of a message: every step, when, where and how long it took."""
    if not _TRACE_ID.fullmatch(id):
        raise usage(f"{id}: a trace id has 32 hexadecimal digits")
    with session.connect() as client:
        found = client.find_trace(id.lower())
    if session.is_table:
        draw_timeline(found, looked_at_width())
    else:
        spans = [_plain_span(span) for span in found.spans]
        print_data(session.output, {**_plain(found), "spans": spans})


def search(
    session: Session,
    *,
    topic: Topic = None,
    partition: Partition = -1,
    offset: Offset = -1,
    key: Key = None,
    consumer_group: Group = None,
    status: Status = None,
    start: Start = None,
    end: End = None,
    min_duration: Least = None,
    max_duration: Most = None,
    limit: Limit = 100,
) -> None:
    """Find traces by what is known of their messages."""
    with session.connect() as client:
        try:
            found = client.search_traces(
                limit=limit,
                topic=topic,
                partition=None if partition < 0 else partition,
                offset=None if offset < 0 else offset,
                key=None if key is None else key.encode(),
                group=consumer_group,
                status=status,
                start=None if start is None else read_time(start, name="--start"),
                end=None if end is None else read_time(end, name="--end"),
                min_duration=min_duration,
                max_duration=max_duration,
            )
        except InvalidRequestError as error:
            raise usage(error.message) from error
    _show(session, found)


def tail(
    session: Session, *, topic: Topic = None, interval: Interval = "500ms", once: Once = False
) -> None:
    """Print what happens to traced messages, as it happens; Ctrl-C ends it.

    With --once it prints what is remembered and ends.
    """
    interval_ms = read_timeout_ms(interval, "--interval")
    if interval_ms < INTERVAL_MS_MIN:
        raise usage(f"--interval: at least {INTERVAL_MS_MIN}ms")
    try:
        with session.connect() as client:
            place = 0 if once else client.tail_traces().next_place
            while True:
                news = client.tail_traces(place)
                place = news.next_place
                for span in news.spans:
                    if topic is None or span.topic == topic:
                        _tell(session, span)
                if once:
                    return
                time.sleep(interval_ms / SECOND_MS)
    except KeyboardInterrupt:
        # It is how one leaves: nothing was broken off.
        return


def stats(session: Session) -> None:
    """Show how much is traced and kept."""
    with session.connect() as client:
        found = client.trace_stats()
    plain = msgspec.structs.asdict(found)
    if not session.is_table:
        print_data(session.output, plain)
        return
    plain["exporters_enabled"] = ", ".join(found.exporters_enabled) or "none"
    print_pairs({name.replace("_", " "): value for name, value in plain.items()})


def _tell(session: Session, span: "SpanEntry") -> None:
    """Print one span on a line of its own, whatever the format."""
    text = span_line(span)
    if not session.is_table:
        text = msgspec.json.encode(_plain_span(span)).decode()
    print(text, flush=True)  # noqa: T201 - seen at once, also through a pipe


def _show(session: Session, found: "list[TraceEntry]") -> None:
    rows = [
        (
            one.trace_id,
            f"{one.topic}/{one.partition}",
            one.offset,
            moment(one.start_ns // NS_PER_US),
            duration_text(one.end_ns - one.start_ns),
            one.span_count,
            one.status,
        )
        for one in found
    ]
    columns = ("TRACE", "PARTITION", ">OFFSET", "BEGAN", ">TOOK", ">SPANS", "STATUS")
    empty = "no traces; see `goqueue trace stats` for how much is sampled"
    session.show([_plain(one) for one in found], Grid(columns=columns, rows=rows, empty=empty))
    if found and session.is_table:
        remark(f"goqueue trace {found[0].trace_id} draws the first")


def _plain(one: "TraceEntry") -> dict[str, object]:
    return {
        "trace_id": one.trace_id,
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "start_time": format_time_us(one.start_ns // NS_PER_US),
        "end_time": format_time_us(one.end_ns // NS_PER_US),
        "duration_ms": (one.end_ns - one.start_ns) / NS_PER_MS,
        "status": one.status,
        "span_count": one.span_count,
    }


def _plain_span(span: "SpanEntry") -> dict[str, object]:
    fields = msgspec.structs.asdict(span)
    at_ns = fields.pop("timestamp_ns")
    fields = {name: value for name, value in fields.items() if value is not None}
    return {"timestamp": format_time_us(at_ns // NS_PER_US), **fields}
