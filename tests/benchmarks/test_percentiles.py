"""Percentiles are values that really occurred."""

import pytest

from benchmarks.percentiles import latency_summary, percentile


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)]
)
def test_percentile_of_a_hundred(fraction: float, expected: float) -> None:
    """The n-th percentile of 1..100 is n."""
    values = [float(value) for value in range(100, 0, -1)]

    assert percentile(values, fraction) == expected


def test_percentile_of_nothing_is_refused() -> None:
    """No values have no percentile; a silent zero would look like a record."""
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_latency_summary_is_in_milliseconds() -> None:
    """Latencies are measured in seconds and reported in milliseconds."""
    assert latency_summary([0.001, 0.002, 0.003]) == {"p50": 2.0, "p99": 3.0}
