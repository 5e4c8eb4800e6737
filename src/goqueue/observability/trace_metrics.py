"""The counters of tracing."""

from goqueue.observability.metrics import Metrics


class TraceMetrics:
    """Made once for a broker."""

    def __init__(self, metrics: Metrics) -> None:
        # Exporters count in threads of their own, and the loop counts what it drops for them.
        counter = metrics.counter("tracing", is_shared=True)
        self.spans = counter("spans", "Spans noted").labels()
        self.exported = counter("spans_exported", "Spans an exporter has taken", "exporter")
        self.dropped = counter("spans_dropped", "Spans an exporter had no room for", "exporter")
        self.failed = counter("export_failures", "Exports that failed", "exporter")
