"""Metrics of the cluster that are read off the image and the membership at each scrape."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from goqueue.base.ids import NodeId
from goqueue.core.cluster.membership import NodeHealth
from goqueue.runtime.cluster.node import Node
from goqueue.runtime.cluster.repairs import Repairs
from goqueue.wire.http.cluster import node_status

_PREFIX = "goqueue_cluster_"
_STATES = ("unknown", "alive", "suspect", "dead", "leaving", "removing")


def cluster_metrics(node: Node) -> Iterator[Metric]:
    """Yield the series of the nodes, their states, and the partitions."""
    image, sight = node.metadata.image, node.sight()
    states = {one.id: node_status(one, sight) for one in image.nodes.values()}
    healthy = sum(state == NodeHealth.ALIVE for state in states.values())
    is_controller = node.metadata.leading.is_own
    yield _gauge("nodes_total", "Registered nodes", len(states))
    yield _gauge("nodes_healthy", "Nodes that are alive", healthy)
    yield _gauge("is_controller", "1 on the node that decides", int(is_controller))
    yield _gauge("partition_count", "Partitions of all topics", image.partition_count)
    yield _counter(
        "unclean_leader_elections",
        "Leaders that may lack committed messages",
        image.unclean_elections,
    )
    yield _counter(
        "controller_elections",
        "Controllers this node has known since it started",
        node.controller.elections,
    )
    age_s = (node.controller.age_ms or 0) / 1_000
    yield _gauge("controller_age_seconds", "How long this node has been the controller", age_s)
    yield from _partitions(node)
    shown = GaugeMetricFamily(
        f"{_PREFIX}node_state", "1 for the state a node is in", labels=["node_id", "state"]
    )
    for name, found in states.items():
        for state in _STATES:
            shown.add_metric([name, state], int(found == state))
    yield shown


def repair_metrics(repairs: Repairs) -> Iterator[Metric]:
    """Yield what was repaired here, and what was given to others for their repairs."""
    yield _counter(
        "repaired_messages", "Damaged messages that came from others", repairs.messages_repaired
    )
    yield _counter("repair_frames_given", "Answers with frames for repairs", repairs.frames_given)


def _partitions(node: Node) -> Iterator[Metric]:
    image = node.metadata.image
    leaders: Counter[NodeId] = Counter()
    followers: Counter[NodeId] = Counter()
    under = offline = off = 0
    for topic in image.topics.values():
        for record in topic.partitions:
            under += record.isr.bit_count() < len(record.replicas)
            leader = record.leader_id
            offline += leader is None
            off += leader is not None and leader != record.replicas[0]
            for one in record.replicas:
                (leaders if one == leader else followers)[one] += 1
    total = image.partition_count
    yield _gauge("under_replicated_partitions", "Partitions with replicas not in sync", under)
    yield _gauge("offline_partitions", "Partitions without a leader", offline)
    yield _gauge(
        "preferred_leader_imbalance",
        "Share of partitions that their first replica does not lead",
        off / total if total else 0.0,
    )
    for name, text, counted in (
        ("leaders_per_node", "Partitions that a node leads", leaders),
        ("followers_per_node", "Partitions that a node follows", followers),
    ):
        family = GaugeMetricFamily(f"{_PREFIX}{name}", text, labels=["node_id"])
        for one in image.nodes:
            family.add_metric([one], counted[one])
        yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}{name}", text)
    family.add_metric([], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}{name}", text)
    family.add_metric([], value)
    return family
