"""The three ways to print an answer: a table for people, JSON and YAML for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import yaml

from goqueue.cli.terminal import escape, style


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table: columns whose name begins with ``>`` are aligned to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    empty: str = "nothing to show"


def say(text: str = "") -> None:
    """Print a line for people on stdout."""
    sys.stdout.write(f"{text}\n")


def remark(text: str) -> None:
    """Print a line beside the answer, on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 topic", "2,000 topics"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def print_data(output: Output, data: object) -> None:
    """Print plain values as JSON or YAML."""
    say(dump(output, data).rstrip("\n"))


def dump(output: Output, data: object) -> str:
    """Return plain values as a JSON or YAML document."""
    if output is Output.YAML:
        return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=False, width=1000))
    return json.dumps(data, indent=2)


def print_grid(grid: Grid) -> None:
    """Print a table: aligned columns, never cut, so that it can be read by ``cut`` and ``awk``."""
    if not grid.rows:
        remark(grid.empty)
        return
    names = [column.removeprefix(">") for column in grid.columns]
    rows = [[escape(str(cell)) for cell in row] for row in grid.rows]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    rights = [column.startswith(">") for column in grid.columns]
    say(style(_line(names, widths, rights), "1", sys.stdout))
    for row in rows:
        say(_line(row, widths, rights))


def _line(cells: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(cells, widths, rights, strict=True)
    )
    return "  ".join(padded).rstrip()


def print_pairs(pairs: Mapping[str, object]) -> None:
    """Print names with their values, one a line."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        say(f"{style(name.ljust(width), '1', sys.stdout)}  {escape(str(value))}")
