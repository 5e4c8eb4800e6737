"""What is told when the demonstration is over."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from examples.demo.books import Books, Check, reconcile, where_rows_went
from examples.demo.readback import Traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The closing report. ``seconds`` is how long everything ran together."""

    seconds: float
    seed: int
    folder: Path
    rows: int
    kinds: dict[str, int]
    went: dict[str, dict[str, int]]
    faults: dict[str, int]
    checks: list[Check]
    latency: dict[str, dict[str, int] | None]
    no_spark: str
    """Why there was no pipeline; empty where there was one."""
    picture: Path | None

    @property
    def adds_up(self) -> bool:
        """Tell whether every row is where it should be."""
        return all(check.is_ok for check in self.checks)


def report_of(
    books: Books,
    traces: Traces,
    *,
    seconds: float,
    seed: int,
    folder: Path,
    kinds: dict[str, int],
    no_spark: str,
    picture: Path | None,
) -> Report:
    """Return the report of a run."""
    latency = {"group": traces.invoices.percentiles()}
    if books.has_pipeline:
        latency["pipeline"] = traces.clean.percentiles()
    return Report(
        seconds=round(seconds, 1),
        seed=seed,
        folder=folder,
        rows=books.intake.rows,
        kinds=kinds,
        went={who: dict(rows) for who, rows in where_rows_went(books).items()},
        faults={fault.value: count for fault, count in sorted(books.intake.faults.items())},
        checks=reconcile(books),
        latency=latency,
        no_spark=no_spark,
        picture=picture,
    )


def plain(report: Report) -> dict[str, Any]:
    """Return a report as plain values."""
    values = asdict(report)
    return values | {
        "folder": str(report.folder),
        "picture": None if report.picture is None else str(report.picture),
        "no_spark": report.no_spark or None,
        "checks": [asdict(check) | {"is_ok": check.is_ok} for check in report.checks],
        "adds_up": report.adds_up,
    }
