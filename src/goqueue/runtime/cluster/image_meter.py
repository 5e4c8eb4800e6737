"""What happens to nodes and partitions of a cluster: counted, and the nodes' comings logged.

It follows the image of this node, so that every node counts the same from when it started.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from goqueue.base.ids import NodeId, TopicId, TopicName
from goqueue.core.cluster.events import (
    Event,
    LeaveBegun,
    MoveStepped,
    NodeFenced,
    NodeForgotten,
    NodeUnfenced,
    PartitionsChanged,
    PartitionsPlaced,
    TopicPlaced,
    TopicRemoved,
)
from goqueue.core.cluster.records import PartitionRecord
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.cluster.consensus import Leading
from goqueue.runtime.cluster.metadata import Metadata

_PREFIX: Final = "goqueue_cluster_"
CLEAN: Final = "clean"
UNCLEAN: Final = "unclean"

log = get_logger("goqueue.cluster")


class ImageMeter:
    """Watches the metadata of one node."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.shrinks: Counter[TopicName] = Counter()
        self.expands: Counter[TopicName] = Counter()
        self.elections: Counter[tuple[TopicName, str]] = Counter()
        self.failures: Counter[NodeId] = Counter()
        self._leaving: set[NodeId] = set()
        self._seen: dict[int, list[tuple[int, int]]] = {}
        """Of each partition by topic id: how many are in sync, and the epoch of its leader."""
        self._is_led = True
        metadata.watch(self.hear)
        metadata.watch_leader(self._leader_changed)

    def __repr__(self) -> str:
        return f"<ImageMeter of {len(self._seen)} topics>"

    def hear(self, events: Sequence[Event] | None) -> None:
        """Take notice of events that were applied; None means that anything may have changed."""
        if events is None:
            self._look_at_all()
            return
        for event in events:
            if isinstance(event, PartitionsChanged):
                self._count_all(event)
            elif isinstance(event, TopicPlaced | PartitionsPlaced | MoveStepped):
                self._look_at(event.topic_id)
            elif isinstance(event, TopicRemoved):
                self._look_at_all()
            else:
                self._hear_of_node(event)

    def _count_all(self, event: PartitionsChanged) -> None:
        unclean = set(event.unclean)
        for change in event.changes:
            place = change[0], change[1]
            self._count(*place, change[2].bit_count(), change[4], is_unclean=place in unclean)

    def _hear_of_node(self, event: Event) -> None:
        if isinstance(event, NodeUnfenced):
            self._leaving.discard(event.node)
            log.info(LogEvent.NODE_JOINED, node=event.node)
        elif isinstance(event, LeaveBegun):
            self._leaving.add(event.node)
        elif isinstance(event, NodeFenced):
            if event.node in self._leaving:
                self._leaving.discard(event.node)
                log.info(LogEvent.NODE_LEFT, node=event.node)
            else:
                self.failures[event.node] += 1
        elif isinstance(event, NodeForgotten):
            self.failures.pop(event.node, None)
            log.info(LogEvent.NODE_LEFT, node=event.node)

    def _count(
        self, topic_id: int, number: int, in_sync: int, epoch: int, *, is_unclean: bool
    ) -> None:
        parts = self._seen.get(topic_id)
        topic = self._metadata.image.topics.get(TopicId(topic_id))
        if parts is None or topic is None or number >= len(parts):
            return
        before, led = parts[number]
        self.shrinks[topic.name] += in_sync < before
        self.expands[topic.name] += in_sync > before
        if epoch > led:
            self.elections[topic.name, UNCLEAN if is_unclean else CLEAN] += 1
        parts[number] = in_sync, epoch

    def _look_at(self, topic_id: TopicId) -> None:
        """Remember the partitions of one topic as they are."""
        topic = self._metadata.image.topics.get(topic_id)
        if topic is not None:
            self._seen[topic_id] = [_state(part) for part in topic.partitions]

    def _look_at_all(self) -> None:
        """Remember the partitions as they are, of topics that are there."""
        topics = self._metadata.image.topics
        self._seen = {one: [_state(part) for part in topics[one].partitions] for one in topics}
        names = {topic.name for topic in topics.values()}
        for counted in (self.shrinks, self.expands):
            for name in [one for one in counted if one not in names]:
                del counted[name]
        for place in [one for one in self.elections if one[0] not in names]:
            del self.elections[place]

    def _leader_changed(self, leading: Leading) -> None:
        """Log when nobody leads the quorum, and when somebody does again."""
        is_led = leading.leader is not None
        if self._is_led and not is_led:
            log.warning(LogEvent.QUORUM_LOST, term=leading.term)
        elif is_led and not self._is_led:
            log.info(LogEvent.QUORUM_RESTORED, term=leading.term)
        self._is_led = is_led

    def metrics(self) -> Iterator[Metric]:
        """Yield the series."""
        in_sync = GaugeMetricFamily(
            f"{_PREFIX}isr_size", "Replicas in sync, of the partition that has fewest",
            labels=["topic"],
        )  # fmt: skip
        for topic in self._metadata.image.topics.values():
            fewest = min((part.isr.bit_count() for part in topic.partitions), default=0)
            in_sync.add_metric([topic.name], fewest)
        yield in_sync
        for name, text, counted in (
            ("isr_shrinks", "Replicas that left the set in sync", self.shrinks),
            ("isr_expands", "Replicas that came into the set in sync", self.expands),
        ):
            family = CounterMetricFamily(f"{_PREFIX}{name}", text, labels=["topic"])
            for topic_name, count in counted.items():
                family.add_metric([topic_name], count)
            yield family
        led = CounterMetricFamily(
            f"{_PREFIX}leader_elections", "Leaders elected", labels=["topic", "election_type"]
        )
        for (topic_name, kind), count in self.elections.items():
            led.add_metric([topic_name, kind], count)
        yield led
        failed = CounterMetricFamily(
            f"{_PREFIX}failure_detections", "How often a node was found dead", labels=["node_id"]
        )
        for node in self._metadata.image.nodes:
            failed.add_metric([node], self.failures[node])
        yield failed


def _state(record: PartitionRecord) -> tuple[int, int]:
    return record.isr.bit_count(), record.leader_epoch
