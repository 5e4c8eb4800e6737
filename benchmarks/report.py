"""What a person reads after a run, and what a program reads: tables and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.figure import Figure
from benchmarks.figures import FIGURES
from benchmarks.options import Options
from benchmarks.percentiles import median
from benchmarks.results import GOQUEUE, Results, Series
from benchmarks.trial import Workload

LATEST = "latest.json"


def print_workload(results: Results, workload: Workload, console: Console) -> None:
    """Print the medians of a workload with GoQueue divided by each peer."""
    rows = [row for row in results.series() if row[0].workload == workload.name]
    if not rows:
        return
    measured = {peer for _, rounds in rows for peer in rounds}
    peers = [peer for peer in results.peers() if peer in measured]
    table = Table(title=f"{workload.title}; in brackets GoQueue / peer", title_justify="left")
    table.add_column("case")
    table.add_column("metric")
    for peer in peers:
        table.add_column(peer, justify="right")
    for series, rounds in rows:
        cells = [_cell(rounds, peer) for peer in peers]
        table.add_row(series.case, f"{series.metric}, {series.unit}", *cells)
    console.print(table)


def print_figures(results: Results, console: Console) -> None:
    """Print every figure that was measured beside what is to be reached."""
    table = Table(title="figures to reach", title_justify="left")
    table.add_column("work")
    table.add_column("target", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("")
    for figure in FIGURES:
        measured = figure.compute(results)
        if measured is not None:
            verdict = "[green]ok[/]" if figure.reached(measured) else "[red]missed[/]"
            shown = f"{measured:.3g} {figure.unit}"
            table.add_row(figure.work, figure.target(), shown, verdict)
    others = len(FIGURES) - table.row_count
    if others:
        table.caption = f"{others} figures of other workloads or peers were not measured"
    console.print(table)


def print_remarks(results: Results, console: Console) -> None:
    """Print which peers are missing and which trials failed, and why."""
    for peer, reason in results.skipped.items():
        console.print(f"[yellow]skipped[/] {peer}: {reason}")
    for failure in results.failures:
        console.print(f"[red]failed[/] {failure}", markup=True)


def write_json(
    results: Results,
    *,
    machine: Mapping[str, object],
    versions: Mapping[str, str],
    options: Options,
) -> Path:
    """Write everything the run found and return where."""
    document = {
        "machine": dict(machine),
        "versions": dict(versions),
        "options": {name: _plain(value) for name, value in asdict(options).items()},
        "skipped": results.skipped,
        "failures": results.failures,
        "results": [_entry(series, rounds) for series, rounds in results.series()],
        "figures": [_verdict(figure, results) for figure in FIGURES],
    }
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / LATEST
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return path


def _cell(rounds: Mapping[str, list[float]], peer: str) -> str:
    if peer not in rounds:
        return ""
    value = median(rounds[peer])
    shown = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
    if peer == GOQUEUE or GOQUEUE not in rounds:
        return shown
    return f"{shown} [dim]({median(rounds[GOQUEUE]) / value:.2f}x)[/]"


def _entry(series: Series, rounds: Mapping[str, Sequence[float]]) -> dict[str, object]:
    return {
        "workload": series.workload,
        "case": series.case,
        "metric": series.metric,
        "unit": series.unit,
        "better": series.better.value,
        "peers": {
            peer: {"median": median(values), "rounds": list(values)}
            for peer, values in rounds.items()
        },
    }


def _verdict(figure: Figure, results: Results) -> dict[str, object]:
    measured = figure.compute(results)
    return {
        "work": figure.work,
        "target": figure.target(),
        "unit": figure.unit,
        "measured": measured,
        "reached": figure.reached(measured),
    }


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value
