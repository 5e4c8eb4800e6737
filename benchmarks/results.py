"""Everything a run measured: one value per round, peer, case and metric."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from benchmarks.percentiles import median

GOQUEUE = "goqueue"


class Better(Enum):
    """Which way a metric improves."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What is measured, without saying by whom: a row of the table."""

    workload: str
    case: str
    metric: str
    unit: str
    better: Better


@dataclass(slots=True)
class Results:
    """The values of each series and peer, in the order they were measured."""

    _values: dict[Series, dict[str, list[float]]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a peer is missing, by its name."""
    failures: list[str] = field(default_factory=list)
    """Trials that raised, with what they said."""

    def add(self, series: Series, peer: str, value: float) -> None:
        """Record the value of one round."""
        self._values.setdefault(series, defaultdict(list))[peer].append(value)

    def series(self) -> Iterator[tuple[Series, Mapping[str, list[float]]]]:
        """Yield every row with the rounds of each peer."""
        yield from self._values.items()

    def peers(self) -> list[str]:
        """Return the peers that measured anything, GoQueue first."""
        names = {peer for rounds in self._values.values() for peer in rounds}
        return sorted(names, key=lambda name: (name != GOQUEUE, name))

    def find(self, workload: str, case: str, metric: str, *, peer: str = GOQUEUE) -> float | None:
        """Return the median of a peer's rounds, or nothing when it was not measured."""
        for series, rounds in self._values.items():
            if (series.workload, series.case, series.metric) == (workload, case, metric):
                return median(rounds[peer]) if peer in rounds else None
        return None
