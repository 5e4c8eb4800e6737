"""The counters of consumer groups."""

from typing import Final

from goqueue.observability.metrics import Metrics

LABEL: Final = "consumer_group"


class GroupMetrics:
    """Every counter that has a group, made once for a broker."""

    def __init__(self, metrics: Metrics) -> None:
        counter, histogram = metrics.counter("consumer"), metrics.histogram
        self.joins = counter("group_joins", "Members that joined", LABEL)
        self.leaves = counter("group_leaves", "Members that are gone", LABEL, "reason")
        self.heartbeats = counter("heartbeats_sent", "Heartbeats received", LABEL)
        self.heartbeat_timeouts = counter(
            "heartbeat_timeouts", "Members that missed several heartbeats", LABEL
        )
        self.session_timeouts = counter("session_timeouts", "Sessions that ended", LABEL)
        self.rebalances = counter("rebalances", "Rebalances begun", LABEL, "trigger")
        self.revoked = counter("partitions_revoked", "Partitions taken from members", LABEL)
        self.assigned = counter("partitions_assigned", "Partitions given to members", LABEL)
        self.rebalance_latency = histogram(
            "consumer",
            "rebalance_latency_seconds",
            "From the change to the last partition in place",
            LABEL,
            "rebalance_type",
        )
        self.heartbeat_latency = histogram(
            "consumer", "heartbeat_latency_seconds", "Time to answer a heartbeat", LABEL
        )

    def forget(self, group: str) -> None:
        """Drop the series of a deleted group."""
        for metric in vars(self).values():
            metric.remove_by_labels({LABEL: group})


class GroupMeter:
    """The counters of one group, looked up once."""

    def __init__(self, metrics: GroupMetrics, group: str) -> None:
        self._metrics = metrics
        self._group = group
        self.joins = metrics.joins.labels(group)
        self.heartbeats = metrics.heartbeats.labels(group)
        self.heartbeat_seconds = metrics.heartbeat_latency.labels(group)
        self.heartbeat_timeouts = metrics.heartbeat_timeouts.labels(group)
        self.session_timeouts = metrics.session_timeouts.labels(group)
        self.revoked = metrics.revoked.labels(group)
        self.assigned = metrics.assigned.labels(group)

    def gone(self, reason: str) -> None:
        """Count a member that is gone."""
        self._metrics.leaves.labels(self._group, reason).inc()

    def begun(self, reason: str) -> None:
        """Count a rebalance."""
        self._metrics.rebalances.labels(self._group, reason).inc()

    def took(self, seconds: float, *, protocol: str) -> None:
        """Note how long a rebalance took."""
        self._metrics.rebalance_latency.labels(self._group, protocol).observe(seconds)
