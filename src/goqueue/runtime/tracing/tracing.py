"""Tracing of a broker: which topics are traced at which rate, and where the notes go."""

from collections.abc import Mapping, Sequence

from pyroaring import BitMap64

from goqueue.base.ids import TopicName
from goqueue.base.names import is_internal
from goqueue.config.model import BrokerConfig
from goqueue.core.topics.settings import AS_BROKER
from goqueue.core.tracing.ids import TracePlace, place_of
from goqueue.core.tracing.traceparent import TraceParent
from goqueue.observability.metrics import Metrics
from goqueue.observability.trace_exports import Exports
from goqueue.observability.trace_metrics import TraceMetrics
from goqueue.observability.trace_ring import TraceRing
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.topic import Topic
from goqueue.runtime.tracing.partition_trace import PartitionTrace
from goqueue.runtime.tracing.query import TraceQuery
from goqueue.runtime.tracing.reader import read_callers
from goqueue.runtime.tracing.tracer import Tracer


class Tracing:
    """Runs in the broker's event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Mapping[TopicName, Topic],
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self.is_enabled = config.tracing_enabled
        self.rate = config.tracing_rate if config.tracing_enabled else 0.0
        self._topics = topics
        counted = TraceMetrics(metrics)
        self._exports = Exports(config, counted)
        self.tracer = Tracer(
            TraceRing(config.tracing_spans), clock=clock, metrics=counted, exporters=self._exports
        )
        self.tracer.read_with(self._read)
        self.query = TraceQuery(self.tracer.ring, topics)

    def __repr__(self) -> str:
        return f"<Tracing of {self.tracer!r}>"

    @property
    def exporters(self) -> Sequence[str]:
        """The names of those who are handed the spans."""
        return [exporter.name for exporter in self._exports]

    # Life.

    def start(self) -> None:
        """Begin to export."""
        if self.is_enabled:
            self._exports.start()

    async def stop(self) -> None:
        """Export what waits, within a time, and end."""
        await self.tracer.stop()
        await self._exports.stop()

    # Topics.

    def open(self, topic: Topic) -> None:
        """Trace the messages of a topic, in all partitions that it has now."""
        if not self.is_enabled or is_internal(topic.record.name):
            return
        life = topic.record.created_ms
        for partition in topic.partitions:
            if partition.trace is not None:
                continue
            place = place_of(*partition.name, life=life)
            rate = self.rate_of(topic)
            partition.trace = PartitionTrace(self.tracer, place, partition.queue, rate)

    def configure(self, topic: Topic) -> None:
        """Take the settings of a topic, for messages from now on."""
        for partition in topic.partitions:
            if partition.trace is not None:
                end = partition.log.end_offset
                partition.trace.change_rate(self.rate_of(topic), from_offset=end)

    def rate_of(self, topic: Topic) -> float:
        """Return which share of a topic's messages is traced."""
        own = topic.settings.trace_sampling
        return float(own) if own != AS_BROKER else self.rate

    async def _read(self, place: TracePlace, offsets: BitMap64) -> Mapping[int, TraceParent]:
        """Return the traces messages carry, from the messages themselves."""
        topic = self._topics.get(TopicName(place.topic))
        if topic is None:
            return {}
        return await read_callers(topic.partition(place.partition), offsets)
