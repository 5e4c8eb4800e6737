"""What the progress of streaming queries says: rows, rates, times and lag.

Shape: calculator. Progress comes as Spark's JSON, batch by batch; the same batch may come twice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How one query stands."""

    batches: int = 0
    batch_id: int = -1
    rows: int = 0
    """Rows read since the run began."""
    rows_per_second: float = 0.0
    batch_ms: int = 0
    lag_rows: int | None = None
    """Rows in the sources and not read yet; None where a source does not tell."""
    late_rows: int = 0
    """Rows that windows and dedups left out since the run began, older than the watermark."""
    violations: Mapping[str, int] = field(default_factory=dict)
    """Broken rules since the run began, by ``part.rule``."""
    seen: Mapping[str, int] = field(default_factory=dict)
    """Rows the rules of a part were tried on since the run began."""
    state: str = "starting"
    error: str = ""


def advance(figures: Figures, progress: Mapping[str, Any]) -> Figures:
    """Return the figures after one more report; one of a batch already counted adds nothing."""
    batch_id = int(progress.get("batchId", -1))
    rows = int(_total(progress, "numInputRows"))
    is_new = batch_id > figures.batch_id and rows > 0
    observed = progress.get("observedMetrics") or {}
    return Figures(
        batches=figures.batches + is_new,
        batch_id=batch_id if is_new else figures.batch_id,
        rows=figures.rows + (rows if is_new else 0),
        rows_per_second=_rate(progress),
        batch_ms=_duration_ms(progress) if rows else figures.batch_ms,
        lag_rows=lag_of(progress),
        late_rows=figures.late_rows + (late_of(progress) if is_new else 0),
        violations=_add(figures.violations, observed, "v") if is_new else figures.violations,
        seen=_add(figures.seen, observed, "n") if is_new else figures.seen,
        state="running",
        error="",
    )


def _rate(progress: Mapping[str, Any]) -> float:
    return round(_total(progress, "processedRowsPerSecond"), 1)


def _total(progress: Mapping[str, Any], name: str) -> float:
    """Return a number of a batch: through Spark Connect only its sources tell."""
    numbers = [progress[name]] if name in progress else []
    numbers = numbers or [source.get(name) for source in progress.get("sources") or ()]
    # Not a number is what nothing in no time comes to.
    return float(sum(one for one in numbers if isinstance(one, int | float) and not isnan(one)))


def _duration_ms(progress: Mapping[str, Any]) -> int:
    durations = progress.get("durationMs") or {}
    return int(durations.get("triggerExecution", progress.get("batchDuration") or 0))


def _add(
    before: Mapping[str, int], observed: Mapping[str, Mapping[str, Any]], letter: str
) -> dict[str, int]:
    """Add what was observed: of ``goqueue_PART`` the columns ``n`` and ``v_0``, ``v_1``, …."""
    total = dict(before)
    for name, row in observed.items():
        part = name.removeprefix("goqueue_")
        for column, value in row.items():
            if column.startswith(letter) and value is not None:
                key = part if letter == "n" else f"{part}.{column.removeprefix('v_')}"
                total[key] = total.get(key, 0) + int(value)
    return total


def late_of(progress: Mapping[str, Any]) -> int:
    """Return how many rows of a batch came behind the watermark, as Spark counts them.

    A window counts what is left of its rows after each task has summed up its own.
    """
    operators = progress.get("stateOperators") or ()
    return sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in operators)


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Return how many rows the sources have beyond what was read."""
    total: int | None = None
    for source in progress.get("sources") or ():
        lag = _source_lag(_offsets(source.get("latestOffset")), _offsets(source.get("endOffset")))
        if lag is not None:
            total = (total or 0) + lag
    return total


def _source_lag(latest: Mapping[str, Any] | None, end: Mapping[str, Any] | None) -> int | None:
    if latest is None or end is None:
        return None
    lag = 0
    for topic, partitions in latest.items():
        if not isinstance(partitions, Mapping):
            return None
        read = end.get(topic) or {}
        for partition, offset in partitions.items():
            lag += max(int(offset) - int(read.get(partition, 0)), 0)
    return lag


def _offsets(value: object) -> Mapping[str, Any] | None:
    """Return offsets by topic and partition; files and the like have others."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None
