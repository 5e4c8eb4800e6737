"""The metrics of dead letters, and the counts behind ``/reliability/stats``."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec
from prometheus_client.core import GaugeMetricFamily

from goqueue.base.ids import TopicName
from goqueue.observability.metrics import Metrics


class DlqStats(msgspec.Struct, frozen=True, kw_only=True):
    """What became of doomed messages since the broker started."""

    total_routed: int
    routes_by_reason: dict[str, int]
    routes_by_topic: dict[str, int]
    create_errors: int
    publish_errors: int


class DlqMeter:
    """Counts what dies and what comes back."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_reason: Counter[str] = Counter()
        self._by_topic: Counter[str] = Counter()
        self._create_errors = 0
        self._publish_errors = 0
        counter = metrics.counter("consumer")
        self._dead_lettered = counter(
            "messages_dead_lettered", "Messages moved to the dead letters", "topic", "reason"
        )
        self._redriven = counter(
            "messages_redriven", "Dead letters moved back into a topic", "topic"
        )
        self._move_errors = counter(
            "dlq_errors", "Attempts to dead-letter messages that failed", "topic", "error_type"
        )

    def watch_depths(self, depths: Callable[[], Mapping[TopicName, int]]) -> None:
        """Read off how many dead letters there are at each scrape."""
        self._metrics.collect_from(lambda: _depth_metrics(depths()))

    def buried(self, topic: str, reasons: Mapping[str, int]) -> None:
        """Count messages of a topic that became dead letters."""
        for reason, count in reasons.items():
            self._by_reason[reason] += count
            self._by_topic[topic] += count
            self._dead_lettered.labels(topic, reason).inc(count)

    def redriven(self, topic: str, count: int) -> None:
        """Count dead letters that went back into a topic."""
        self._redriven.labels(topic).inc(count)

    def failed(self, topic: str, code: str, *, is_create: bool) -> None:
        """Count an attempt that failed."""
        if is_create:
            self._create_errors += 1
        else:
            self._publish_errors += 1
        self._move_errors.labels(topic, code).inc()

    def forget(self, topic: str) -> None:
        """Drop the series of a deleted topic."""
        self._by_topic.pop(topic, None)
        for metric in (self._dead_lettered, self._redriven, self._move_errors):
            metric.remove_by_labels({"topic": topic})

    @property
    def stats(self) -> DlqStats:
        """The counts so far."""
        return DlqStats(
            total_routed=self._by_reason.total(),
            routes_by_reason=dict(self._by_reason),
            routes_by_topic=dict(self._by_topic),
            create_errors=self._create_errors,
            publish_errors=self._publish_errors,
        )


def _depth_metrics(depths: Mapping[TopicName, int]) -> Iterator[GaugeMetricFamily]:
    gauge = GaugeMetricFamily("goqueue_consumer_dlq_depth", "Dead letters", labels=["topic"])
    for topic, depth in depths.items():
        gauge.add_metric([topic], depth)
    yield gauge
