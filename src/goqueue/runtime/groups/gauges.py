"""Metrics that are read off the groups at each scrape."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from goqueue.base.ids import GroupId
from goqueue.core.groups.states import GroupState
from goqueue.observability.group_metrics import LABEL
from goqueue.runtime.groups.hosted_group import HostedGroup


def group_metrics(groups: Mapping[GroupId, HostedGroup]) -> Iterator[Metric]:
    """Yield how large each group is and where it stands."""
    members = _gauge("group_members", "Members of a group")
    generation = _gauge("group_generation", "Generation of a group")
    assigned = _gauge("assigned_partitions", "Partitions that have an owner")
    state = _gauge("group_state", "1 for the state a group is in", "state")
    active = GaugeMetricFamily(
        "goqueue_broker_active_consumers",
        "Members of a group that read a topic",
        labels=["topic", LABEL],
    )
    for name, hosted in groups.items():
        readers = Counter(topic for one in hosted.members.values() for topic in one.topics)
        for topic, count in readers.items():
            active.add_metric([topic, name], count)
        members.add_metric([name], len(hosted.members))
        generation.add_metric([name], hosted.generation)
        owned = (hosted.group.owned_by(member) for member in hosted.members)
        assigned.add_metric([name], len(set().union(*owned)))
        for one in GroupState:
            state.add_metric([name, one.value], float(one is hosted.state))
    yield from (members, generation, assigned, state, active)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"goqueue_consumer_{name}", text, labels=[LABEL, *labels])
