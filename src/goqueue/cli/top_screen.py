"""How ``goqueue top`` fits what it sees on a terminal, however small."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from goqueue.base.units import SECOND_MS, format_duration_ms, format_size_bytes
from goqueue.cli.output import Grid, print_grid, say
from goqueue.cli.terminal import escape
from goqueue.cli.top_rates import GroupSight, TopicSight, TopView

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, Group
    from rich.table import Table

T = TypeVar("T")
NAME_WIDTH_MIN: Final = 12
HEADS: Final = 6
"""Lines that are no rows: the first one, two heads with their lines, and a gap."""


class Column(NamedTuple, Generic[T]):
    """A column to the right of the name; on a narrow terminal the last ones are left out."""

    title: str
    width: int
    show: Callable[[T], str]


def _count(number: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= unit:
            scale = 1e3 if name == "k" else unit
            return f"{number / scale:.1f}{name}"
    return f"{number:.0f}"


def _age(seconds: float) -> str:
    return format_duration_ms(int(seconds) * SECOND_MS) if seconds >= 1 else f"{seconds:.1f}s"


def _lanes(topic: TopicSight) -> str:
    return "/".join(_count(number) for number in topic.pending.values())


TOPIC_COLUMNS: Final[Sequence[Column[TopicSight]]] = (
    Column("IN/S", 7, lambda one: _count(one.rate_in)),
    Column("OUT/S", 7, lambda one: _count(one.rate_out)),
    Column("PENDING", 8, lambda one: _count(sum(one.pending.values()))),
    Column("DELAYED", 8, lambda one: _count(one.delayed)),
    Column("DLQ", 6, lambda one: _count(one.dead)),
    Column("LANES", 22, _lanes),
    Column("SIZE", 10, lambda one: format_size_bytes(one.size_bytes)),
    Column("PARTITIONS", 10, lambda one: str(one.partitions)),
)
GROUP_COLUMNS: Final[Sequence[Column[GroupSight]]] = (
    Column("LAG", 7, lambda one: _count(one.lag)),
    Column("BEHIND", 8, lambda one: _age(one.lag_seconds)),
    Column("ACKS/S", 7, lambda one: _count(one.rate_acked)),
    Column("IN FLIGHT", 9, lambda one: _count(one.in_flight)),
    Column("RETRY", 6, lambda one: _count(one.waiting)),
    Column("DEAD", 6, lambda one: _count(one.dead)),
    Column("MEMBERS", 7, lambda one: str(one.members)),
    Column("STATE", 11, lambda one: one.state),
)


def headline(sight: TopView, address: str) -> str:
    """Return the first line."""
    uptime = format_duration_ms(sight.uptime_ms // SECOND_MS * SECOND_MS)
    return (
        f"{escape(sight.node_id)}  {address}  up {uptime}  in {_count(sight.rate_in)}/s"
        f"  out {_count(sight.rate_out)}/s"
    )


def draw(sight: TopView, size: "ConsoleDimensions", address: str) -> "Group":
    """Return what is shown on a terminal of this size: never wider, never longer."""
    from rich.console import Group  # noqa: PLC0415 - loaded by those who watch only
    from rich.text import Text  # noqa: PLC0415

    rows = max(size.height - HEADS, 2)
    group_rows = min(len(sight.groups), max(rows // 2, rows - len(sight.topics)))
    topics = _table("TOPIC", TOPIC_COLUMNS, sight.topics, size.width, rows - group_rows)
    groups = _table("GROUP", GROUP_COLUMNS, sight.groups, size.width, group_rows)
    first = Text(headline(sight, address), style="bold", no_wrap=True, overflow="ellipsis")
    return Group(first, topics, Text(""), groups)


def _table(
    noun: str, columns: Sequence[Column[T]], items: Sequence[T], width: int, rows_max: int
) -> "Table":
    from rich.table import Table  # noqa: PLC0415 - loaded by those who watch only
    from rich.text import Text  # noqa: PLC0415

    fitting = fit(columns, width)
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(noun, no_wrap=True, overflow="ellipsis", ratio=1)
    for column in fitting:
        table.add_column(column.title, justify="right", no_wrap=True, width=column.width)
    shown = items if len(items) <= rows_max else items[: max(rows_max - 1, 0)]
    for item in shown:
        cells = [escape(str(getattr(item, "name", ""))), *(one.show(item) for one in fitting)]
        table.add_row(*map(Text, cells))
    if len(shown) < len(items):
        table.add_row(Text(f"… {len(items) - len(shown)} more", style="dim"))
    return table


def fit(columns: Sequence[Column[T]], width: int) -> Sequence[Column[T]]:
    """Return as many columns as leave room for the name."""
    left = width - NAME_WIDTH_MIN
    for place, column in enumerate(columns):
        left -= column.width + 1
        if left < 0:
            return columns[:place]
    return columns


def draw_plain(sight: TopView) -> None:
    """Print both tables once, whole."""
    say(headline(sight, ""))
    print_grid(_grid("TOPIC", TOPIC_COLUMNS, sight.topics, "no topics yet"))
    print_grid(_grid("GROUP", GROUP_COLUMNS, sight.groups, "no groups yet"))


def _grid(noun: str, columns: Sequence[Column[T]], items: Sequence[T], empty: str) -> Grid:
    titles = (noun, *(f">{one.title.replace(' ', '_')}" for one in columns))
    rows = [(getattr(item, "name", ""), *(one.show(item) for one in columns)) for item in items]
    return Grid(columns=titles, rows=rows, empty=empty)
