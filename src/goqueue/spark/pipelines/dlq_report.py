"""Why messages die, where, and since when: counted by Spark, told as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from goqueue.spark.pipelines.bind import Surroundings
from goqueue.spark.pipelines.letters import letters

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOP: Final = 20
BARS_MAX: Final = 60
STEPS_SECONDS: Final = (60, 300, 900, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
ERROR_CHARACTERS: Final = 120


def _counts() -> list["Column"]:
    return [
        F.count(F.lit(1)).alias("n"),
        F.unix_micros(F.min("died_at")).alias("a"),
        F.unix_micros(F.max("died_at")).alias("b"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a table: what, how many, since when and until when."""

    name: tuple[str, ...]
    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqReport:
    """All tables of a report."""

    dlqs: tuple[str, ...]
    count: int
    first: datetime | None
    last: datetime | None
    reasons: tuple[Line, ...]
    """By topic and reason."""
    groups: tuple[Line, ...]
    keys: tuple[Line, ...]
    errors: tuple[Line, ...]
    step_seconds: int
    timeline: tuple[tuple[datetime, str, int], ...]
    """How many died for a reason in the time that begins so; times without any are left out."""

    @property
    def times(self) -> tuple[datetime, ...]:
        """The beginning of every bar from the first to the last, also where nothing died."""
        if not self.timeline:
            return ()
        step = timedelta(seconds=self.step_seconds)
        first, last = self.timeline[0][0], self.timeline[-1][0]
        return tuple(first + place * step for place in range((last - first) // step + 1))


def report(around: Surroundings, dlqs: Sequence[str]) -> DlqReport:
    """Count the dead letters of some topics."""
    rows = letters(around, dlqs).select(
        "source",
        "reason",
        "group",
        F.coalesce(F.col("key"), F.lit("(none)")).alias("key"),
        F.substring("error", 1, ERROR_CHARACTERS).alias("error"),
        "died_at",
    )
    rows = rows.cache()
    try:
        return _count(rows, dlqs)
    finally:
        rows.unpersist()


def _count(rows: "DataFrame", dlqs: Sequence[str]) -> DlqReport:
    whole: Any = rows.agg(*_counts()).first()
    if not whole["n"]:
        return DlqReport(
            dlqs=tuple(dlqs), count=0, first=None, last=None, reasons=(), groups=(), keys=(),
            errors=(), step_seconds=STEPS_SECONDS[0], timeline=(),
        )  # fmt: skip
    step = step_of((whole["b"] - whole["a"]) / 1e6)
    return DlqReport(
        dlqs=tuple(dlqs),
        count=int(whole["n"]),
        first=_moment(whole["a"]),
        last=_moment(whole["b"]),
        reasons=_lines(rows, "source", "reason"),
        groups=_lines(rows, "group", "reason"),
        keys=_lines(rows, "source", "key"),
        errors=_lines(rows, "reason", "error"),
        step_seconds=step,
        timeline=_timeline(rows, step),
    )


def _moment(us: int) -> datetime:
    """Return a time; those of Spark itself would be in the zone of this machine."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def step_of(seconds: float) -> int:
    """Return the width of a bar, so that there are not too many of them."""
    for step in STEPS_SECONDS:
        if seconds / step <= BARS_MAX:
            return step
    return int(seconds / BARS_MAX) + 1


def _lines(rows: "DataFrame", *by: str) -> tuple[Line, ...]:
    found = rows.groupBy(*by).agg(*_counts()).orderBy(F.desc("n"), *by).limit(TOP).collect()
    return tuple(
        Line(
            name=tuple(str(row[one]) for one in by),
            count=int(row["n"]),
            first=_moment(row["a"]),
            last=_moment(row["b"]),
        )
        for row in found
    )


def _timeline(rows: "DataFrame", step: int) -> tuple[tuple[datetime, str, int], ...]:
    start = F.floor(F.unix_seconds("died_at") / step) * step * 1_000_000
    counted = rows.groupBy(start.alias("at"), "reason").agg(F.count(F.lit(1)).alias("n"))
    return tuple(
        (_moment(row["at"]), str(row["reason"]), int(row["n"]))
        for row in counted.orderBy("at", "reason").collect()
    )
