"""The counters of schema validation."""

from goqueue.observability.metrics import Metrics


class SchemaMetrics:
    """What was judged by schemas, by topic."""

    def __init__(self, metrics: Metrics) -> None:
        self._validations = metrics.counter("broker")(
            "schema_validations", "Messages judged by a schema", "topic", "result"
        )
        self._latency = metrics.histogram(
            "broker", "schema_validation_latency_seconds", "Time to judge a batch", "topic"
        )

    def judged(self, topic: str, *, fit: int, unfit: int, seconds: float) -> None:
        """Count one batch."""
        if fit:
            self._validations.labels(topic, "valid").inc(fit)
        if unfit:
            self._validations.labels(topic, "invalid").inc(unfit)
        self._latency.labels(topic).observe(seconds)

    def forget(self, topic: str) -> None:
        """Drop the series of a deleted topic."""
        for metric in (self._validations, self._latency):
            metric.remove_by_labels({"topic": topic})
