"""Counters and histograms as plain numbers, which become series when somebody scrapes.

Counting happens with every request and scraping every few seconds. So a series is a number, or a
list of them, and counting is an addition; names, labels and the sums of buckets are worked out
when the text is written. Numbers of one thread need no lock: the text, which another thread
writes, may have one request in a bucket and not yet in the sum. Where several threads count in
one series, that series has a lock (``is_shared``).
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

_Series = TypeVar("_Series", "CounterSeries", "HistogramSeries")


class CounterSeries:
    """One number that only grows."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total: float = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.total}>"

    def inc(self, amount: float = 1) -> None:
        """Count something."""
        assert amount >= 0, "counters only grow"
        self.total += amount


class SharedCounterSeries(CounterSeries):
    """The same for several threads."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        # Guards the total, which is read and written by several threads.
        self._lock = threading.Lock()

    def inc(self, amount: float = 1) -> None:
        """Count something; any thread."""
        with self._lock:
            super().inc(amount)


class HistogramSeries:
    """How many amounts were in each bucket, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """One for each bound, of what is above the bound before; the last is beyond them all."""
        self.total = 0.0

    def __repr__(self) -> str:
        return f"<HistogramSeries: {sum(self.counts)} observed>"

    def observe(self, amount: float, times: int = 1) -> None:
        """Count an amount that was observed so many times; one that equals a bound is below it."""
        self.counts[bisect_left(self._bounds, amount)] += times
        self.total += amount * times


class Family(Collector, Generic[_Series]):
    """Series of one name that differ in the values of their labels."""

    kind: ClassVar[str]

    def __init__(
        self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self.name = name
        self._text = text
        self._label_names = tuple(labels)
        self._series: dict[tuple[str, ...], _Series] = {}
        registry.register(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self._series)} series>"

    def labels(self, *values: str) -> _Series:
        """Return the series with these values, beginning at zero if there was none."""
        found = self._series.get(values)
        if found is None:
            assert len(values) == len(self._label_names), "a value for each label"
            found = self._series[values] = self._make()
        return found

    def remove_by_labels(self, labels: Mapping[str, str]) -> None:
        """Drop every series with these values, whatever its other labels are."""
        wanted = [(self._label_names.index(name), value) for name, value in labels.items()]
        for values in list(self._series):
            if all(values[place] == value for place, value in wanted):
                del self._series[values]

    def describe(self) -> Iterable[Metric]:
        """Return the name, which no other family of the registry may have."""
        return [Metric(self.name, self._text, self.kind)]

    def collect(self) -> Iterable[Metric]:
        """Return the series as they are now; any thread."""
        metric = Metric(self.name, self._text, self.kind)
        for values, series in list(self._series.items()):
            labels = dict(zip(self._label_names, values, strict=True))
            for suffix, more, number in self._samples(series):
                metric.add_sample(self.name + suffix, {**labels, **more}, number)
        return [metric]

    def _make(self) -> _Series:
        raise NotImplementedError

    def _samples(self, series: _Series) -> Iterator[tuple[str, dict[str, str], float]]:
        """Return what a series becomes: the end of its name, labels of its own, a number."""
        raise NotImplementedError


class Counters(Family[CounterSeries]):
    """Counters of one name."""

    kind: ClassVar[str] = "counter"

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        *,
        is_shared: bool = False,
    ) -> None:
        self._is_shared = is_shared
        super().__init__(name, text, labels, registry)

    def _make(self) -> CounterSeries:
        return SharedCounterSeries() if self._is_shared else CounterSeries()

    def _samples(self, series: CounterSeries) -> Iterator[tuple[str, dict[str, str], float]]:
        yield "_total", {}, series.total


class Histograms(Family[HistogramSeries]):
    """Histograms of one name."""

    kind: ClassVar[str] = "histogram"

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        *,
        buckets: Sequence[float],
    ) -> None:
        assert list(buckets) == sorted(buckets), "bounds go up"
        self._bounds = tuple(float(bound) for bound in buckets)
        super().__init__(name, text, labels, registry)

    def _make(self) -> HistogramSeries:
        return HistogramSeries(self._bounds)

    def _samples(self, series: HistogramSeries) -> Iterator[tuple[str, dict[str, str], float]]:
        counts, seen = series.counts.copy(), 0
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            seen += count
            yield "_bucket", {"le": _text_of(bound)}, float(seen)
        yield "_count", {}, float(seen)
        yield "_sum", {}, series.total


def _text_of(bound: float) -> str:
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text
