"""Few numbers out of many: medians over rounds and percentiles over messages."""

import math
from collections.abc import Sequence
from statistics import median

__all__ = ["latency_summary", "median", "percentile"]


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the smallest value that at least this fraction of the values does not exceed."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def latency_summary(seconds: Sequence[float]) -> dict[str, float]:
    """Describe latencies in milliseconds."""
    return {
        "p50": percentile(seconds, 0.50) * 1000,
        "p99": percentile(seconds, 0.99) * 1000,
    }
