"""How pipelines look on a terminal: as a tree, while they run, and when they are over."""

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from goqueue.base.units import format_duration_ms
from goqueue.cli.output import Grid, print_data, print_grid, remark, say
from goqueue.cli.session import Session
from goqueue.cli.terminal import escape

if TYPE_CHECKING:
    from rich.tree import Tree

    from goqueue.spark.pipelines.graph import Graph
    from goqueue.spark.pipelines.state import RunState
    from goqueue.spark.pipelines.topics import NewTopic

COLUMNS: Final = ("QUERY", "STATE", ">ROWS", ">ROWS/S", ">BATCHES", ">BATCH", ">LAG", ">LATE")
COLUMNS_SHOWN_MAX: Final = 100
MESSAGE: Final = (
    "topic", "partition", "offset", "timestamp", "key", "value", "headers", "priority",
    "deliver_at",
)  # fmt: skip
"""What the connector says of every message, be it typed or not."""
Schemas = Mapping[str, Mapping[str, str]]
"""The columns of each part, with their types."""
PLAIN_COLUMNS: Final = 240
"""How wide the drawing may be where it is read by a program or a file."""


def draw_graph(graph: "Graph", schemas: Schemas, new_topics: "Sequence[NewTopic]") -> None:
    """Draw a pipeline from its sinks down to its sources."""
    from rich.console import Console  # noqa: PLC0415 - takes time to load
    from rich.text import Text  # noqa: PLC0415
    from rich.tree import Tree  # noqa: PLC0415

    pipeline = graph.pipeline
    head = Text(f"pipeline {pipeline.name}", style="bold")
    if pipeline.description:
        head.append(f"  {escape(pipeline.description)}", style="not bold dim")
    tree = Tree(head)
    shown: set[str] = set()
    for sink in pipeline.sinks.values():
        text = Text("◆ ", style="green")
        text.append(sink.name, style="bold green")
        text.append(f"  {escape(sink.label)}", style="default")
        _branch(tree.add(text), graph, sink.input, schemas, shown)
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_COLUMNS)
    console.print(tree)
    for one in new_topics:
        say(f"topic {one.name} will be made, with {one.partitions} partitions")
    for name in graph.unused:
        remark(f"{name} is not used by any sink")


def _branch(tree: "Tree", graph: "Graph", name: str, schemas: Schemas, shown: set[str]) -> None:
    from rich.text import Text  # noqa: PLC0415

    is_source = name in graph.pipeline.sources
    text = Text("● " if is_source else "○ ", style="cyan")
    text.append(name, style="bold cyan" if is_source else "bold")
    text.append(f"  {escape(graph.part(name).label)}", style="default")
    if name in graph.streams:
        text.append("  stream", style="dim")
    if name in shown:
        text.append("  (see above)", style="dim")
        tree.add(text)
        return
    shown.add(name)
    branch = tree.add(text)
    for rule in graph.pipeline.expectations.get(name, ()):
        note = Text(f"✓ {escape(rule.name)}: {escape(rule.rule)}", style="yellow")
        note.append(f"  else {rule.otherwise.value}", style="dim")
        branch.add(note)
    if name in schemas:
        branch.add(Text(escape(columns_text(schemas[name])), style="dim"))
    for one in graph.inputs[name]:
        _branch(branch, graph, one, schemas, shown)


def columns_text(columns: Mapping[str, str]) -> str:
    """Return columns with their types; those that every message has are one word, behind them."""
    are_messages = all(name in columns for name in MESSAGE)
    own = [f"{name} {kind}" for name, kind in columns.items() if name not in MESSAGE]
    if not are_messages:
        own = [f"{name} {kind}" for name, kind in columns.items()]
    more = [f"… {len(own) - COLUMNS_SHOWN_MAX} more"] if len(own) > COLUMNS_SHOWN_MAX else []
    rest = ["the columns of a message"] if are_messages else []
    return ", ".join([*own[:COLUMNS_SHOWN_MAX], *more, *rest])


def rows_of(state: "RunState") -> list[tuple[object, ...]]:
    """Return a line for each query."""
    return [
        (
            name,
            query.state,
            f"{query.rows:,}",
            f"{query.rows_per_second:,.0f}",
            query.batches,
            format_duration_ms(query.batch_ms) if query.batches else "-",
            "-" if query.lag_rows is None else f"{query.lag_rows:,}",
            f"{query.late_rows:,}",
        )
        for name, query in state.queries.items()
    ]


def tell_run(session: Session, state: "RunState") -> None:
    """Say how a run ended."""
    from goqueue.spark.pipelines.state import plain  # noqa: PLC0415

    if not session.is_table:
        print_data(session.output, plain(state))
        return
    tell_state(state)


def tell_state(state: "RunState") -> None:
    """Print how a pipeline stands."""
    took = format_duration_ms((state.updated_ms - state.started_ms) // 1_000 * 1_000)
    say(f"pipeline {state.name} ({state.mode}): {state.state} after {took}")
    if state.error:
        say(f"error: {escape(state.error, keep=chr(10))}")
    print_grid(Grid(columns=COLUMNS, rows=rows_of(state), empty="no query has begun"))
    for rule, count in state.violations.items():
        say(f"{escape(rule)}: {count:,} {'row' if count == 1 else 'rows'} broke it")


class LiveScreen:
    """A table on the terminal that follows a run; nothing where nobody watches."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._live: Any = None

    def __enter__(self) -> Self:
        if self._is_wanted:
            from rich.console import Console  # noqa: PLC0415 - takes time to load
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(console=Console(file=sys.stderr), transient=True, auto_refresh=False)
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

    def update(self, state: "RunState") -> None:
        """Show how it stands."""
        if self._live is None:
            return
        from rich.table import Table  # noqa: PLC0415

        table = Table(title=f"pipeline {state.name} ({state.mode}), Ctrl-C stops", box=None)
        for column in COLUMNS:
            justify: Any = "right" if column.startswith(">") else "left"
            table.add_column(column.removeprefix(">"), justify=justify)
        for row in rows_of(state):
            table.add_row(*(escape(str(cell)) for cell in row))
        self._live.update(table, refresh=True)
