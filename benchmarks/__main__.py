"""Run the benchmarks and report: tables here, JSON and a picture in the results directory."""

import signal
import sys
from collections.abc import Sequence
from types import FrameType

from rich.console import Console

from benchmarks import machine, options, plot, report
from benchmarks.peers.registry import PEERS
from benchmarks.run import run
from benchmarks.workloads import WORKLOADS

WIDTH = 130
"""Columns of a report that goes to a file."""


def main(arguments: Sequence[str]) -> int:
    """Measure, print and write; fail when a trial failed, not when a figure was missed."""
    chosen = options.parse(
        arguments, workloads=[workload.name for workload in WORKLOADS], peers=list(PEERS)
    )
    workloads = [each for each in WORKLOADS if not chosen.only or each.name in chosen.only]
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    described = machine.describe(chosen.directory)
    for name, value in described.items():
        console.print(f"[dim]{name:>20}[/] {value}", highlight=False)
    if described["filesystem"] in ("tmpfs", "ramfs"):
        console.print("[red]this directory is in memory: durability costs nothing here[/]")

    # Leaving by an exception stops every broker; the default action would orphan them.
    signal.signal(signal.SIGTERM, _leave)
    results, versions = run(chosen, workloads, console)

    for workload in workloads:
        report.print_workload(results, workload, console)
    report.print_remarks(results, console)
    report.print_figures(results, console)
    written = report.write_json(results, machine=described, versions=versions, options=chosen)
    picture = plot.draw(results, workloads, chosen.results)
    console.print(f"written: {written}" + (f" and {picture}" if picture else ""))
    return 1 if results.failures else 0


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
