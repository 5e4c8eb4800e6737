"""A running pipeline in Prometheus' words."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from goqueue.spark.pipelines.state import QueryState, RunState

LOOPBACK = "127.0.0.1"


class PipelineMetrics(Collector):
    """The state as it was told last; counters count from the start of the run."""

    def __init__(self) -> None:
        self._told = _families("", {}, {})
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return what was told last."""
        return self._told

    def update(self, state: "RunState") -> None:
        """Take over how the pipeline stands."""
        self._told = _families(state.name, state.queries, state.violations)

    def serve(self, port: int) -> int:
        """Serve on loopback; return the port, which the system chooses if 0 is given."""
        server, _ = start_http_server(port, addr=LOOPBACK, registry=self.registry)
        return int(server.server_port)


def _families(
    pipeline: str, queries: "dict[str, QueryState]", violations: dict[str, int]
) -> list[Metric]:
    labels = ["pipeline", "sink"]
    up = _gauge("up", "Whether the query runs", labels)
    rows = _counter("rows", "Rows read since the run began", labels)
    rate = _gauge("rows_per_second", "Rows a second of the last batch", labels)
    batches = _counter("batches", "Batches since the run began", labels)
    batch = _gauge("batch_seconds", "Duration of the last batch", labels)
    lag = _gauge("lag_rows", "Rows in the topics and not read yet", labels)
    late = _counter("late_rows", "Rows left out as older than the watermark", labels)
    broken = _counter("violations", "Rows that broke a rule", ["pipeline", "rule"])
    for sink, query in queries.items():
        where = (pipeline, sink)
        up.add_metric(where, float(query.state == "running"))
        rows.add_metric(where, query.rows)
        rate.add_metric(where, query.rows_per_second)
        batches.add_metric(where, query.batches)
        batch.add_metric(where, query.batch_ms / 1_000)
        if query.lag_rows is not None:
            lag.add_metric(where, query.lag_rows)
        late.add_metric(where, query.late_rows)
    for rule, count in violations.items():
        broken.add_metric((pipeline, rule), count)
    return [up, rows, rate, batches, batch, lag, late, broken]


def _gauge(name: str, text: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"goqueue_pipeline_{name}", text, labels=labels)


def _counter(name: str, text: str, labels: list[str]) -> CounterMetricFamily:
    """Return a counter; its name ends in ``_total`` where it is scraped."""
    return CounterMetricFamily(f"goqueue_pipeline_{name}", text, labels=labels)
