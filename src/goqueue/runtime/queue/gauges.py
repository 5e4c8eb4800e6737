"""What can be read off the ledgers when somebody scrapes the metrics."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from goqueue.base.units import SECOND_MS
from goqueue.observability.consumer_metrics import LABEL
from goqueue.runtime.clock import Clock
from goqueue.runtime.queue.ledgers import Ledgers

Series = Counter[tuple[str, str]]
"""A number by topic and group."""


def consumer_metrics(ledgers: Ledgers, clock: Clock) -> Iterator[Metric]:
    """Yield how far each group is in each topic."""
    committed: Series = Counter()
    lag: Series = Counter()
    in_flight: Series = Counter()
    waiting: Series = Counter()
    age_ms: Series = Counter()
    for hosted in ledgers:
        place = (hosted.partition.name.topic, hosted.group)
        committed[place] += hosted.ledger.committed
        lag[place] += hosted.lag()
        in_flight[place] += len(hosted.ledger.leases.offsets)
        waiting[place] += len(hosted.ledger.waiting.offsets)
        age_ms[place] = max(age_ms[place], hosted.age_ms(clock.now_ms()))
    yield _gauge("consumer_committed_offset", "Where a group reads on", committed)
    yield _gauge("consumer_lag", "Messages a group has not settled", lag)
    seconds = {place: age / SECOND_MS for place, age in age_ms.items()}
    yield _gauge("consumer_lag_seconds", "Age of the oldest message not settled", seconds)
    yield _gauge("consumer_in_flight", "Messages leased and not settled", in_flight)
    yield _gauge("consumer_waiting", "Messages that wait for their next attempt", waiting)


def _gauge(name: str, text: str, series: "Series | dict[tuple[str, str], float]") -> Metric:
    family = GaugeMetricFamily(f"goqueue_{name}", text, labels=["topic", LABEL])
    for (topic, group), number in series.items():
        family.add_metric([topic, group], number)
    return family
