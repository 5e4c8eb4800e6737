"""The counters of recurring schedules."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily

from goqueue.observability.metrics import Metrics


class ScheduleMetrics:
    """Made once for a broker."""

    def __init__(self, metrics: Metrics) -> None:
        counter = metrics.counter("schedule")
        self._metrics = metrics
        self.published = counter(
            "ticks_published", "Messages published by recurring schedules"
        ).labels()
        self.missed = counter(
            "ticks_missed", "Ticks that no message was published for in time"
        ).labels()
        self.refused = counter("ticks_refused", "Ticks whose message the topic refused").labels()

    def watch(self, counts: Callable[[], dict[str, int]]) -> None:
        """Read off how many schedules there are by state whenever somebody scrapes."""
        self._metrics.collect_from(lambda: _state_metrics(counts()))


def _state_metrics(counts: dict[str, int]) -> Iterator[GaugeMetricFamily]:
    gauge = GaugeMetricFamily("goqueue_schedules", "Recurring schedules", labels=["state"])
    for state, count in counts.items():
        gauge.add_metric([state], count)
    yield gauge
