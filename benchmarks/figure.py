"""One figure to reach: how it is computed from the medians of a run, and its target."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.results import Results

Compute = Callable[[Results], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One promise about speed or size: a number, and the side of the target it must be on."""

    work: str
    unit: str
    compute: Compute
    at_least: float | None = None
    at_most: float | None = None

    def target(self) -> str:
        """Say what is asked for."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g} {self.unit}"
        return f"≤ {self.at_most:g} {self.unit}"

    def reached(self, measured: float | None) -> bool | None:
        """Say whether a number is on the right side; nothing measured is no answer."""
        if measured is None:
            return None
        if self.at_least is not None and measured < self.at_least:
            return False
        return self.at_most is None or measured <= self.at_most


Key = tuple[str, str, str]


def against(ours: Key, theirs: Key, *, peer: str) -> Compute:
    """Divide our median by a peer's."""

    def compute(results: Results) -> float | None:
        numerator = results.find(*ours)
        denominator = results.find(*theirs, peer=peer)
        return numerator / denominator if numerator and denominator else None

    return compute


def within(ours: Key, other: Key) -> Compute:
    """Divide one of our medians by another."""
    return against(ours, other, peer="goqueue")


def best_of(*targets: tuple[Compute, float]) -> Compute:
    """Divide each by its target and take the largest, where reaching one of them is enough."""

    def compute(results: Results) -> float | None:
        measured = [(found, target) for compute, target in targets if (found := compute(results))]
        return max((found / target for found, target in measured), default=None)

    return compute


def alone(key: Key, *, scale: float = 1.0) -> Compute:
    """Take one of our medians as it is."""

    def compute(results: Results) -> float | None:
        found = results.find(*key)
        return None if found is None else found * scale

    return compute
