"""How fast orders were handled, second by second, for the picture and the report.

Shape: calculator.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from examples.demo.times import SECOND_US

PERCENTILES: Final = (50, 99)


@dataclass(slots=True)
class Trace:
    """Rows by the second they arrived, and how long they took by the second they were published."""

    arrived: Counter[int] = field(default_factory=Counter)
    waited_ms: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By second: how many rows, and their latencies added up."""
    live_ms: Counter[int] = field(default_factory=Counter)
    """Latencies of rows published since ``live_us``; what waited for the start is no measure."""
    live_us: int = 0

    def add(self, *, published_us: int, arrived_us: int) -> None:
        """Take a row into account."""
        latency_ms = max(arrived_us - published_us, 0) // 1_000
        second = published_us // SECOND_US
        self.arrived[arrived_us // SECOND_US] += 1
        count, total = self.waited_ms.get(second, (0, 0))
        self.waited_ms[second] = (count + 1, total + latency_ms)
        if published_us >= self.live_us:
            self.live_ms[latency_ms] += 1

    def percentiles(self) -> dict[str, int] | None:
        """Return how long rows took, None if there are none."""
        if not self.live_ms:
            return None
        return {f"p{one}_ms": percentile(self.live_ms, one) for one in PERCENTILES}

    def means(self) -> list[tuple[int, float]]:
        """Return the mean latency by the second of publishing, in milliseconds."""
        return [
            (second, total / count) for second, (count, total) in sorted(self.waited_ms.items())
        ]

    def rates(self, seconds: Sequence[int]) -> list[int]:
        """Return how many rows arrived in each of these seconds."""
        return [self.arrived[second] for second in seconds]


def percentile(counts: Counter[int], percent: int) -> int:
    """Return the smallest value that so many percent of all values do not exceed."""
    wanted = -(-counts.total() * percent // 100)
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    raise ValueError("there are no values")
