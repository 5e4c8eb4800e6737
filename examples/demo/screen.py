"""How the demonstration looks: live on a terminal, in lines elsewhere, and when it is over."""

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.demo.books import Check
from examples.demo.report import Report
from examples.demo.sight import VisibleFrames
from examples.demo.terminal import escape, remark, say, style

PLAIN_S: Final = 2.0
"""How often a line is written where nobody watches."""
BARS: Final = " ▁▂▃▄▅▆▇█"
QUERIES: Final = {
    "clean_orders": "check, dedup, enrich",
    "quarantine_orders": "quarantine",
    "lake": "lake",
    "totals": "totals",
}
FAULTY: Final = ("garbled", "nameless", "negative", "outdated", "future")


class Screen:
    """Shows a demonstration as it goes on."""

    def __init__(self, *, is_live: bool, stop: threading.Event) -> None:
        self._is_live = is_live
        self._stop = stop
        self._live: Live | None = None
        self._written_s = 0.0

    def __enter__(self) -> Self:
        if self._is_live:
            self._live = Live(console=Console(), transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, line: str) -> None:
        """Say something that stays."""
        if self._live is not None:
            self._live.console.print(Text(escape(line), style="dim"))
        else:
            remark(escape(line))

    def update(self, sight: VisibleFrames) -> None:
        """Show how it stands."""
        if self._live is not None:
            self._live.update(draw(sight, is_stopping=self._stop.is_set()), refresh=True)
        elif time.monotonic() - self._written_s >= PLAIN_S:
            self._written_s = time.monotonic()
            remark(line_of(sight))


# Where nobody watches.


def line_of(sight: VisibleFrames) -> str:
    """Return how it stands in one line."""
    group = sight.group
    parts = [
        f"{sight.seconds:5.0f}s {sight.phase:<8}",
        f"published {sight.published:,} ({sight.published_per_second:,.0f}/s)",
        f"group lag {group.lag:,}, dead {group.dead:,}",
    ]
    if sight.queries:
        clean = sight.queries.get("clean_orders")
        rows = 0 if clean is None else clean.rows
        parts.append(f"pipeline {rows:,} rows, quarantined {sum(sight.quarantined.values()):,}")
    else:
        parts.append(f"spark: {escape(sight.spark)}")
    return " | ".join(parts)


# On a terminal.


def draw(sight: VisibleFrames, *, is_stopping: bool) -> RenderableType:
    """Return the whole view."""
    panels = [
        Panel(one, title=title, title_align="left", border_style=colour, padding=(0, 1))
        for title, colour, one in (
            (f"orders  {sight.published:,} published", "cyan", _orders(sight)),
            (f"consumer group  {sight.group.members} members", "green", _group(sight)),
            (f"Spark pipeline  {escape(sight.spark)}", "blue", _pipeline(sight)),
            (f"totals  {sight.windows} windows of 10 s", "magenta", _totals(sight)),
        )
    ]
    head = Text.assemble(("GoQueue demo  ", "bold"), (_headline(sight), ""))
    foot = "finishing what is under way; Ctrl-C again ends at once" if is_stopping else _hint(sight)
    return Group(head, *panels, Text(foot, style="dim"))


def _headline(sight: VisibleFrames) -> str:
    left = "" if sight.seconds_left is None else f", {sight.seconds_left:.0f} s left"
    return f"{sight.phase} for {sight.seconds:.0f} s{left}"


def _hint(sight: VisibleFrames) -> str:
    if sight.phase in {"draining", "checking"}:
        return "everybody finishes what is under way; then all of it is read back"
    return "Ctrl-C drains, checks and reports"


def _orders(sight: VisibleFrames) -> RenderableType:
    kinds = sight.kinds
    faulty = sum(kinds.get(one, 0) for one in FAULTY)
    return Text.assemble(
        (f"{sight.published_per_second:6,.0f}/s ", "bold"),
        (spark_line(sight.rates), "cyan"),
        f"  late {kinds.get('late', 0):,}  twice {kinds.get('duplicate', 0):,}  broken {faulty:,}",
        no_wrap=True,
        overflow="ellipsis",
    )


def spark_line(values: Sequence[float], width: int = 24) -> str:
    """Return values as a line of bars, the last ones on the right."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0) or 1.0
    bars = [BARS[round(max(value, 0.0) / top * (len(BARS) - 1))] for value in shown]
    return "".join(bars).rjust(width)


def _grid(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        justify: Any = "right" if name.startswith(">") else "left"
        table.add_column(name.removeprefix(">"), justify=justify, no_wrap=True)
    return table


def _group(sight: VisibleFrames) -> RenderableType:
    group = sight.group
    return Text.assemble(
        (f"{group.acked_per_second:6,.0f}/s ", "bold"),
        f"acked {group.acked:,}  lag {group.lag:,}  in flight {group.in_flight:,}"
        f"  retrying {group.waiting:,}  ",
        (f"dead letters {group.dead:,}", "red" if group.dead else ""),
        no_wrap=True,
        overflow="ellipsis",
    )


def _pipeline(sight: VisibleFrames) -> RenderableType:
    if not sight.queries:
        return Text("its first results take a while; orders wait in the topic meanwhile", "dim")
    table = _grid("query", ">rows", ">rows/s", ">batches", ">batch", ">behind")
    for name, query in sight.queries.items():
        table.add_row(
            QUERIES.get(name, name),
            f"{query.rows:,}",
            f"{query.rows_per_second:,.0f}",
            f"{query.batches:,}",
            f"{query.batch_ms / 1_000:,.1f} s" if query.batches else "-",
            "-" if query.lag_rows is None else f"{query.lag_rows:,}",
        )
    total = sum(sight.quarantined.values())
    broken = "  ".join(
        f"✗ {rule.partition(': ')[2]} {count:,}"
        for rule, count in sight.quarantined.items()
        if count
    )
    note = Text.assemble(
        (f"quarantined {total:,}", "yellow"),
        (f"   {escape(broken)}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
    return Group(table, note) if total else table


def _totals(sight: VisibleFrames) -> RenderableType:
    if not sight.totals:
        return Text("-", "dim")
    top = sight.totals[0][2] or 1
    table = _grid("", ">orders", ">revenue", "")
    table.show_header = False
    for category, orders, cents in sight.totals:
        bar = Text("█" * max(round(cents / top * 24), 1), style="magenta")
        table.add_row(escape(category), f"{orders:,} orders", f"{cents / 100:,.2f}", bar)
    return table


# At the end.


def tell_report(report: Report) -> None:
    """Print the closing report, what matters most at its end."""
    for check in report.checks:
        mark = style("ok", "32", sys.stdout) if check.is_ok else style("NO", "31;1", sys.stdout)
        found = f", found {check.found:,}{_others(check)}" if not check.is_ok else ""
        say(f"  {mark}  {check.name}: {check.expected:,}{found}")
    say()
    title = f"{report.rows:,} orders, {report.seconds:.0f} s with everything running"
    say(style(title, "1", sys.stdout))
    for who, rows in report.went.items():
        told = " + ".join(f"{count:,} {name}" for name, count in rows.items())
        latency = report.latency.get(who)
        fast = f"   p50 {latency['p50_ms']:,} ms, p99 {latency['p99_ms']:,} ms" if latency else ""
        say(f"  {who:<9} {report.rows:,} in = {told}{fast}")
    if report.no_spark:
        say(f"  pipeline  none: {escape(report.no_spark)}")
    say(f"  {'every row is where it should be' if report.adds_up else 'it does not add up'}")
    if report.picture is not None:
        say(f"  picture   {report.picture}")
    say(f"  all of it {report.folder}")


def _others(check: Check) -> str:
    return " others" if check.found == check.expected else ""
