"""The metrics of the contract, each with the one place that updates it.

Counters of what passes through are plain numbers (``observability/counting.py``), bumped once per
batch. What can be read off the broker's state (sizes, offsets, segments) is collected at each
scrape, so it costs nothing otherwise.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from goqueue.base.errors import TopicNotFoundError
from goqueue.observability.counting import Counters, Histograms

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LANES: Final = ("critical", "high", "normal", "low", "background")
_NORMAL: Final = LANES.index("normal")
LATENCY_BUCKETS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip


disable_created_metrics()  # type: ignore[no-untyped-call]


class TopicMeter:
    """The counters of one topic, looked up once."""

    def __init__(self, metrics: "Metrics", topic: str) -> None:
        self.published = metrics.messages_published.labels(topic)
        self.published_bytes = metrics.bytes_published.labels(topic)
        self.publish_seconds = metrics.publish_latency.labels(topic)
        self.consumed = metrics.messages_consumed.labels(topic, "")
        self.consumed_bytes = metrics.bytes_consumed.labels(topic, "")
        self.fetch_seconds = metrics.fetch_latency.labels(topic, "")
        self._fsyncs = metrics.fsyncs.labels(topic)
        self._fsync_seconds = metrics.fsync_latency.labels(topic)
        self._fsync_errors = metrics.fsync_errors.labels(topic)
        self._compactions = metrics.compactions.labels(topic)
        self._compaction_seconds = metrics.compaction_latency.labels(topic)
        self._compaction_bytes = metrics.compaction_bytes.labels(topic)
        self._lanes = [metrics.priority_published.labels(topic, lane) for lane in LANES]

    @property
    def published_total(self) -> int:
        """Return how many messages were published since the broker started."""
        return int(self.published.total)

    @property
    def read_total(self) -> int:
        """Return how many messages plain readers got since the broker started."""
        return int(self.consumed.total)

    def synced(self, seconds: float, *, is_failed: bool) -> None:
        """Count one sync of a log."""
        self._fsyncs.inc()
        self._fsync_seconds.observe(seconds)
        if is_failed:
            self._fsync_errors.inc()

    def compacted(self, seconds: float, bytes_reclaimed: int) -> None:
        """Count one compaction of a partition."""
        self._compactions.inc()
        self._compaction_seconds.observe(seconds)
        self._compaction_bytes.inc(max(bytes_reclaimed, 0))

    def count_lanes(self, published: Iterable[Sequence[int]]) -> None:
        """Count messages by priority; each item is the counts of one frame, most urgent first."""
        for counts in published:
            for lane, count in zip(self._lanes, counts, strict=True):
                if count:
                    lane.inc(count)

    def count_normal(self, messages: int) -> None:
        """Count messages that have no priority of their own."""
        self._lanes[_NORMAL].inc(messages)


class Metrics:
    """Every metric of one broker, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._sources: list[Callable[[], Iterable[Metric]]] = []
        broker = self.counter("broker")
        storage = self.counter("storage")
        self.messages_published = broker("messages_published", "Messages published", "topic")
        self.bytes_published = broker("bytes_published", "Frame bytes published", "topic")
        self.messages_consumed = broker(
            "messages_consumed", "Messages read", "topic", "consumer_group"
        )
        self.bytes_consumed = broker("bytes_consumed", "Bytes read", "topic", "consumer_group")
        self.messages_failed = broker(
            "messages_failed", "Publish requests refused", "topic", "error_type"
        )
        self.priority_published = broker(
            "priority_messages_published", "Messages published by lane", "topic", "priority"
        )
        self.publish_latency = self.histogram(
            "broker", "publish_latency_seconds", "From request to ack", "topic"
        )
        self.fetch_latency = self.histogram(
            "broker", "fetch_latency_seconds", "Time to answer a read", "topic", "consumer_group"
        )
        self.fsyncs = storage("fsync", "Syncs of a log", "topic")
        self.fsync_errors = storage("fsync_errors", "Syncs that failed", "topic")
        self.fsync_latency = self.histogram(
            "storage", "fsync_latency_seconds", "Time of one sync", "topic"
        )
        self.compactions = storage("compaction_runs", "Compactions of a partition", "topic")
        self.compaction_bytes = storage(
            "compaction_bytes_reclaimed", "Bytes compaction gave back", "topic"
        )
        self.compaction_latency = self.histogram(
            "storage", "compaction_latency_seconds", "Time of one compaction", "topic"
        )
        self.active_connections = Gauge(
            "goqueue_broker_active_connections",
            "Open native connections",
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def counter(self, subsystem: str, *, is_shared: bool = False) -> Callable[..., Counters]:
        """Return what makes the counters of a subsystem; shared ones are for several threads."""

        def make(name: str, text: str, *labels: str) -> Counters:
            full = f"goqueue_{subsystem}_{name}"
            return Counters(full, text, labels, self.registry, is_shared=is_shared)

        return make

    def histogram(
        self,
        subsystem: str,
        name: str,
        text: str,
        *labels: str,
        buckets: Sequence[float] = LATENCY_BUCKETS,
    ) -> Histograms:
        """Make a histogram, of durations unless it has buckets of its own."""
        full = f"goqueue_{subsystem}_{name}"
        return Histograms(full, text, labels, self.registry, buckets=buckets)

    def meter(self, topic: str) -> TopicMeter:
        """Return the counters of a topic."""
        return TopicMeter(self, topic)

    def publish_failed(self, topic: str, code: str) -> None:
        """Count a publish that was refused; a topic that was deleted meanwhile gets no series."""
        if code != TopicNotFoundError.code:
            self.messages_failed.labels(topic, code).inc()

    def forget(self, topic: str) -> None:
        """Drop the series of a deleted topic."""
        metrics: tuple[Counters | Histograms, ...] = (
            self.messages_published, self.bytes_published, self.messages_consumed,
            self.bytes_consumed, self.messages_failed, self.priority_published,
            self.publish_latency, self.fetch_latency, self.fsyncs, self.fsync_errors,
            self.fsync_latency, self.compactions, self.compaction_bytes, self.compaction_latency,
        )  # fmt: skip
        for metric in metrics:
            metric.remove_by_labels({"topic": topic})

    def collect_from(self, source: Callable[[], Iterable[Metric]]) -> None:
        """Add series that are read off the broker's state at each scrape."""
        self._sources.append(source)

    def gather(self) -> Iterator[Metric]:
        """Read series off the broker's state, in its event loop; others may run in between."""
        for source in self._sources:
            yield from source()

    def write(self, gathered: Sequence[Metric]) -> bytes:
        """Return everything in Prometheus' text format; may run in a thread."""
        registry = CollectorRegistry()
        registry.register(self.registry)
        registry.register(_Gathered(gathered))
        return generate_latest(registry)


class _Gathered(Collector):
    """Series whose numbers are known."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
