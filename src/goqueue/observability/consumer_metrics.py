"""The counters of what groups take and settle."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from goqueue.base.ids import TopicPartition
from goqueue.observability.counting import Counters, Histograms
from goqueue.observability.metrics import Metrics

LABEL: Final = "consumer_group"
_BATCH_BUCKETS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000)


class Part(Protocol):
    """Messages of one partition that were leased."""

    @property
    def partition(self) -> TopicPartition:
        """Where they come from."""
        ...

    @property
    def rows(self) -> int:
        """How many there are."""
        ...

    @property
    def size(self) -> int:
        """How many bytes."""
        ...


class Settlements(NamedTuple):
    """Messages of one topic that a group settled in the same way."""

    group: str
    topic: str
    verb: str
    messages: int


class ConsumerMetrics:
    """Every counter of polls and settlements, made once for a broker."""

    def __init__(self, metrics: Metrics) -> None:
        counter, histogram = metrics.counter("consumer"), metrics.histogram
        broker = metrics.counter("broker")
        self._consumed = metrics.messages_consumed
        self._consumed_bytes = metrics.bytes_consumed
        self._polls = counter("polls", "Polls answered", LABEL)
        self._empty = counter("polls_empty", "Polls that found nothing", LABEL)
        self._poll_latency = histogram(
            "consumer", "poll_latency_seconds", "From a poll to its answer", LABEL
        )
        self._batch_size = histogram(
            "consumer",
            "poll_batch_size",
            "Messages leased by one poll",
            LABEL,
            buckets=_BATCH_BUCKETS,
        )
        self._by_verb = {
            "ack": broker("messages_acked", "Messages acked", "topic", LABEL),
            "nack": broker("messages_nacked", "Messages nacked", "topic", LABEL),
            "reject": broker("messages_rejected", "Messages rejected", "topic", LABEL),
        }
        self._expired = broker("leases_expired", "Messages whose lease ran out", "topic", LABEL)
        self._ack_latency = histogram(
            "broker", "ack_latency_seconds", "Time to settle messages", "topic", "ack_type"
        )
        self._commits = counter("offset_commits", "Offsets committed", "topic", LABEL)
        self._commit_errors = counter(
            "offset_commit_errors", "Commits refused", "topic", LABEL, "error_type"
        )
        self._commit_latency = histogram(
            "consumer", "offset_commit_latency_seconds", "Time to commit offsets", LABEL
        )
        self.totals: Counter[str] = Counter()
        """What happened since the broker started, by the names of ``/reliability/stats``."""
        self._series: dict[tuple[object, ...], Any] = {}
        """Series as they were last asked for: finding one takes longer than counting in it."""

    def _of(self, metric: Any, *labels: str) -> Any:  # noqa: ANN401 - a series is of its metric's type
        """Return the series of a metric."""
        place = (metric, *labels)
        found = self._series.get(place)
        if found is None:
            found = self._series[place] = metric.labels(*labels)
        return found

    def count(self, name: str, amount: int) -> None:
        """Count something for ``/reliability/stats``."""
        self.totals[name] += amount

    def polled(self, group: str, parts: Sequence[Part], seconds: float) -> None:
        """Count a poll that was answered."""
        self._of(self._polls, group).inc()
        if not parts:
            self._of(self._empty, group).inc()
            return
        # A poll that waited for messages says nothing about the broker, so only full ones count.
        self._of(self._poll_latency, group).observe(seconds)
        total = 0
        for part in parts:
            topic = part.partition.topic
            rows = part.rows
            total += rows
            self._of(self._consumed, topic, group).inc(rows)
            self._of(self._consumed_bytes, topic, group).inc(part.size)
        self._of(self._batch_size, group).observe(total)
        self.count("tracked", total)

    def settled(self, settled: Settlements, seconds: float) -> None:
        """Count messages that were settled."""
        group, topic, verb, count = settled
        counter = self._by_verb.get(verb)
        if counter is not None and count:
            self._of(counter, topic, group).inc(count)
        self.count(verb, count)
        self._of(self._ack_latency, topic, verb).observe(seconds)

    def expired(self, group: str, topic: str, count: int) -> None:
        """Count messages whose lease ran out."""
        self._expired.labels(topic, group).inc(count)
        self.count("expired", count)

    def committed(
        self, group: str, partitions: Collection[TopicPartition], *, seconds: float
    ) -> None:
        """Count offsets that were committed."""
        for partition in partitions:
            self._commits.labels(partition.topic, group).inc()
        if partitions:
            self._commit_latency.labels(group).observe(seconds)

    def commit_failed(self, group: str, topics: Iterable[str], error_type: str) -> None:
        """Count a commit that was refused."""
        for topic in topics:
            self._commit_errors.labels(topic, group, error_type).inc()

    def forget(self, group: str) -> None:
        """Drop the series of a deleted group."""
        self._series.clear()
        metrics: tuple[Counters | Histograms, ...] = (
            self._consumed, self._consumed_bytes, self._polls, self._empty, self._poll_latency,
            self._batch_size, *self._by_verb.values(), self._expired, self._commits,
            self._commit_errors, self._commit_latency,
        )  # fmt: skip
        for metric in metrics:
            metric.remove_by_labels({LABEL: group})

    def forget_topic(self, topic: str) -> None:
        """Drop the series of a deleted topic."""
        self._series.clear()
        metrics: tuple[Counters | Histograms, ...] = (
            *self._by_verb.values(), self._expired, self._ack_latency, self._commits,
            self._commit_errors,
        )  # fmt: skip
        for metric in metrics:
            metric.remove_by_labels({"topic": topic})
