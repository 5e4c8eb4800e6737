"""What tracing costs: publishing and consuming the same messages untraced, at 1 % and at 100 %.

The rates are those of the topic, so that one broker serves all trials and nothing else differs. The
processor time of the broker is measured beside the rate: it is less shaken by what else runs.
"""

from functools import partial

import goqueue
from benchmarks.peers.peer import PARTITIONS
from benchmarks.results import Better
from benchmarks.trial import RATE, Bench, Measured, Metric, Trial, Workload

VALUE_BYTES = 100
SHARES = {"untraced": 0.0, "at 1 %": 0.01, "at 100 %": 1.0}
BROKER = Metric(name="broker", unit="us/msg", better=Better.LOWER)


def trials(bench: Bench) -> list[Trial]:
    """Publish at each rate in turn, and consume what was published."""
    name = bench.goqueue.name
    return [
        Trial(case=case, peer=name, measure=partial(publish, bench, share))
        for case, share in SHARES.items()
    ] + [
        Trial(case=f"consume, {case}", peer=name, measure=partial(consume, bench, share))
        for case, share in SHARES.items()
    ]


def publish(bench: Bench, share: float) -> Measured:
    """Publish one by one."""
    topic, count = _topic(bench, share), bench.options.messages
    client = bench.goqueue.client()
    before = bench.goqueue.processor_seconds()
    seconds = client.publish(topic, bench.pool(VALUE_BYTES).take(count))
    used = bench.goqueue.processor_seconds() - before
    client.delete(topic)
    return {RATE: count / seconds, BROKER: used / count * 1e6}


def consume(bench: Bench, share: float) -> Measured:
    """Consume as a queue, one ack per message."""
    topic, count = _topic(bench, share), bench.options.messages
    client = bench.goqueue.client()
    client.publish(topic, bench.pool(VALUE_BYTES).take(count))
    before = bench.goqueue.processor_seconds()
    seconds = client.consume(topic, count=count)
    used = bench.goqueue.processor_seconds() - before
    client.delete(topic)
    return {RATE: count / seconds, BROKER: used / count * 1e6}


def _topic(bench: Bench, share: float) -> str:
    topic = bench.fresh_topic()
    with goqueue.connect(bench.goqueue.client().address) as client:
        client.create_topic(topic, partitions=PARTITIONS, trace_sampling=share)
    return topic


WORKLOAD = Workload(name="tracing", title="what tracing costs", trials=trials)
