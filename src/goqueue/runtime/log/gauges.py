"""Metrics that are read off the logs at each scrape."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from goqueue.base.ids import TopicName
from goqueue.runtime.log.topic import Topic
from goqueue.storage.partition_log import PartitionLog

_Family = GaugeMetricFamily | CounterMetricFamily


def storage_metrics(topics: Mapping[TopicName, Topic]) -> Iterator[Metric]:
    """Yield the storage series of every topic, and how many topics and partitions there are."""
    count = GaugeMetricFamily("goqueue_broker_topic_count", "Topics")
    count.add_metric([], len(topics))
    yield count
    partitions = GaugeMetricFamily(
        "goqueue_broker_topic_partitions", "Partitions of a topic", labels=["topic"]
    )
    for name, topic in topics.items():
        partitions.add_metric([name], len(topic.partitions))
    yield partitions
    dirty = GaugeMetricFamily(
        "goqueue_storage_compaction_dirty_ratio",
        "Share of a compacted topic's sealed bytes that is not compacted yet",
        labels=["topic"],
    )
    for name, topic in topics.items():
        if topic.settings.is_compacted:
            sealed = sum(part.log.sealed_bytes for part in topic.partitions)
            new = sum(part.log.dirty_bytes for part in topic.partitions)
            dirty.add_metric([name], new / sealed if sealed else 0.0)
    yield dirty
    yield from _delays(topics)
    for family, read in _families():
        for name, topic in topics.items():
            family.add_metric([name], sum(read(part.log) for part in topic.partitions))
        yield family


def _delays(topics: Mapping[TopicName, Topic]) -> Iterator[Metric]:
    """Yield the series of delayed messages."""

    def counter(name: str, text: str) -> CounterMetricFamily:
        return CounterMetricFamily(
            f"goqueue_broker_delayed_messages_{name}", text, labels=["topic"]
        )

    scheduled = counter("scheduled", "Messages published with a delay")
    fired = counter("fired", "Messages that became due")
    pending = GaugeMetricFamily(
        "goqueue_broker_delayed_messages_pending", "Messages that wait", labels=["topic"]
    )
    for name, topic in topics.items():
        schedules = [partition.queue.schedule for partition in topic.partitions]
        scheduled.add_metric([name], sum(one.scheduled_total for one in schedules))
        fired.add_metric([name], sum(one.fired_total for one in schedules))
        pending.add_metric([name], topic.delayed)
    yield scheduled
    yield fired
    yield pending


def _families() -> Iterator[tuple[_Family, Callable[[PartitionLog], int]]]:
    def gauge(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"goqueue_storage_{name}", text, labels=["topic"])

    def counter(name: str, text: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"goqueue_storage_{name}", text, labels=["topic"])

    def unreadable(log: PartitionLog) -> int:
        return sum(gap.end_offset - gap.start_offset for gap in log.recovery.gaps)

    yield counter("bytes_written", "Bytes appended"), lambda log: log.counters.bytes_written
    yield counter("bytes_read", "Bytes read"), lambda log: log.counters.bytes_read
    yield counter("segments_created", "Segments begun"), lambda log: log.counters.segments_created
    yield counter("segments_deleted", "Segments deleted"), lambda log: log.counters.segments_deleted
    yield (
        counter("index_rebuilds", "Indexes made anew"),
        lambda log: sum(segment.index_rebuilds for segment in log.segments),
    )
    yield counter("index_lookups", "Index searches"), lambda log: log.counters.lookups
    yield gauge("segments_active", "Segments taking appends"), lambda _: 1
    yield gauge("segments_total", "Segments"), lambda log: len(log.segments)
    yield gauge("log_size_bytes", "Bytes of the log"), lambda log: log.size_bytes
    yield gauge("log_end_offset", "Offset of the next message"), lambda log: log.end_offset
    yield gauge("log_start_offset", "Offset of the oldest message"), lambda log: log.start_offset
    yield gauge("unreadable_messages", "Messages behind bad checksums"), unreadable
