"""A running pipeline in Prometheus' words."""

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, start_http_server

if TYPE_CHECKING:
    from goqueue.spark.pipelines.state import RunState

LOOPBACK = "127.0.0.1"


class PipelineMetrics:
    """Gauges that follow the state; rows and violations count from the start of the run."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ["pipeline", "sink"]
        self._up = self._gauge("up", "Whether the query runs", labels)
        self._rows = self._gauge("rows", "Rows read since the run began", labels)
        self._rate = self._gauge("rows_per_second", "Rows a second of the last batch", labels)
        self._batches = self._gauge("batches", "Batches since the run began", labels)
        self._batch = self._gauge("batch_seconds", "Duration of the last batch", labels)
        self._lag = self._gauge("lag_rows", "Rows in the topics and not read yet", labels)
        self._broken = self._gauge(
            "violations", "Rows that broke a rule since the run began", ["pipeline", "rule"]
        )

    def _gauge(self, name: str, text: str, labels: list[str]) -> Gauge:
        return Gauge(f"goqueue_pipeline_{name}", text, labels, registry=self.registry)

    def update(self, state: "RunState") -> None:
        """Take over how the pipeline stands."""
        for sink, query in state.queries.items():
            labels = (state.name, sink)
            self._up.labels(*labels).set(query.state == "running")
            self._rows.labels(*labels).set(query.rows)
            self._rate.labels(*labels).set(query.rows_per_second)
            self._batches.labels(*labels).set(query.batches)
            self._batch.labels(*labels).set(query.batch_ms / 1_000)
            if query.lag_rows is not None:
                self._lag.labels(*labels).set(query.lag_rows)
        for rule, count in state.violations.items():
            self._broken.labels(state.name, rule).set(count)

    def serve(self, port: int) -> int:
        """Serve on loopback; return the port, which the system chooses if 0 is given."""
        server, _ = start_http_server(port, addr=LOOPBACK, registry=self.registry)
        return int(server.server_port)
