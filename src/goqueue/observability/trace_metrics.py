"""The counters of tracing."""

from goqueue.observability.metrics import Metrics


class TraceMetrics:
    """Made once for a broker."""

    def __init__(self, metrics: Metrics) -> None:
        counter = metrics.counter("tracing")
        self.spans = counter("spans", "Spans noted")
        self.exported = counter("spans_exported", "Spans an exporter has taken", "exporter")
        self.dropped = counter("spans_dropped", "Spans an exporter had no room for", "exporter")
        self.failed = counter("export_failures", "Exports that failed", "exporter")
