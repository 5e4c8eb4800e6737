"""One picture of a run: rates, latencies, and how they hold up as things grow."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from benchmarks.percentiles import median
from benchmarks.results import GOQUEUE, Results, Series
from benchmarks.trial import Workload

PICTURE = "latest.png"
COLUMNS = 3
COLOURS = {
    GOQUEUE: "#0b7285",
    "redis": "#c92a2a",
    "redis-always": "#f06595",
    "redis-plain": "#ffa8a8",
    "nats": "#5f3dc4",
    "rabbitmq": "#e8590c",
    "kafka": "#343a40",
    "fdatasync": "#adb5bd",
}
GROWING = ("restart", "partitions", "log-size")
"""Workloads whose cases are steps of one quantity and are drawn as lines."""


def draw(results: Results, workloads: list[Workload], directory: Path) -> Path | None:
    """Draw one panel per workload that measured anything and return the picture's path."""
    panels = [(workload, _rows(results, workload)) for workload in workloads]
    panels = [(workload, rows) for workload, rows in panels if rows]
    if not panels:
        return None
    lines = -(-len(panels) // COLUMNS)
    figure, axes = plt.subplots(
        lines, COLUMNS, figsize=(6 * COLUMNS, 4.2 * lines), squeeze=False, layout="constrained"
    )
    for axis, (workload, rows) in zip(axes.flat, panels, strict=False):
        draw_panel = _draw_lines if workload.name in GROWING else _draw_bars
        draw_panel(axis, rows)
        axis.set_title(workload.title, fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    peers = _peers([row for _, rows in panels for row in rows])
    patches = [Patch(color=COLOURS[peer], label=peer) for peer in peers]
    figure.legend(handles=patches, loc="outside upper center", ncols=len(peers), frameon=False)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / PICTURE
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


Rows = list[tuple[Series, Mapping[str, list[float]]]]


def _rows(results: Results, workload: Workload) -> Rows:
    return [row for row in results.series() if row[0].workload == workload.name]


def _peers(rows: Rows) -> list[str]:
    present = {peer for _, rounds in rows for peer in rounds}
    return [peer for peer in COLOURS if peer in present]


def _draw_bars(axis: Any, rows: Rows) -> None:  # noqa: ANN401 - matplotlib's axes are dynamic
    width = 0.8 / len(_peers(rows))
    lowest = math.inf
    for number, (_, rounds) in enumerate(rows):
        present = [peer for peer in COLOURS if peer in rounds]
        for place, peer in enumerate(present):
            value = median(rounds[peer])
            centre = number + (place - (len(present) - 1) / 2) * width
            bars = axis.bar(centre, value, width * 0.94, color=COLOURS[peer])
            axis.bar_label(bars, [_short(value)], fontsize=6.5, padding=1)
            lowest = min(lowest, value)
    axis.set_xticks(range(len(rows)), [f"{row.case}\n{row.metric}" for row, _ in rows], fontsize=8)
    axis.set_yscale("log")
    axis.set_ylim(bottom=10 ** math.floor(math.log10(lowest) - 0.3))
    axis.margins(y=0.1)
    axis.set_ylabel(f"{rows[0][0].unit}, log scale")


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f}M"
    return f"{value / 1e3:.0f}k" if value >= 1e4 else f"{value:.3g}"


def _draw_lines(axis: Any, rows: Rows) -> None:  # noqa: ANN401 - as above
    steps = list(dict.fromkeys(_step(series) for series, _ in rows))
    for peer in _peers(rows):
        for name in dict.fromkeys(_line(series) for series, _ in rows):
            found = [
                (steps.index(_step(series)), median(rounds[peer]))
                for series, rounds in rows
                if _line(series) == name and peer in rounds
            ]
            if found:
                axis.plot(*zip(*found, strict=True), marker="o", color=COLOURS[peer])
                axis.annotate(name, found[-1], (0, 6), textcoords="offset points", ha="right")
    axis.set_xticks(range(len(steps)), steps, fontsize=8)
    axis.set_ylim(bottom=0)
    axis.set_ylabel(rows[0][0].unit)


def _step(series: Series) -> str:
    return series.metric if series.workload == "log-size" else series.case


def _line(series: Series) -> str:
    return series.metric if series.workload == "restart" else ""
