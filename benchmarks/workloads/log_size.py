"""How the publish rate holds up as the log behind a topic grows."""

from functools import partial

from benchmarks.peers.peer import PARTITIONS, Peer
from benchmarks.results import Better
from benchmarks.trial import Bench, Measured, Metric, Trial, Workload

VALUE_BYTES = 1024
STEPS = 8


def trials(bench: Bench) -> list[Trial]:
    """Let the peers that keep their log on disk publish into one topic step by step."""
    return [
        Trial(case="rate at", peer=peer.name, measure=partial(grow, bench, peer))
        for peer in bench.peers
        if peer.partitioned
    ]


def grow(bench: Bench, peer: Peer) -> Measured:
    """Publish the volume in equal steps and take the rate of each."""
    client = peer.client()
    topic = bench.fresh_topic()
    client.create(topic, partitions=PARTITIONS)
    step_bytes = bench.options.volume_bytes // STEPS
    messages = step_bytes // VALUE_BYTES
    rates = {}
    for step in range(1, STEPS + 1):
        seconds = client.publish(topic, bench.pool(VALUE_BYTES).take(messages))
        size = f"{(step * step_bytes) >> 20} MiB"
        rates[Metric(name=size, unit="msg/s", better=Better.HIGHER)] = messages / seconds
    client.delete(topic)
    return rates


WORKLOAD = Workload(
    name="log-size",
    title="publish 1 KiB with keys against the size of the log",
    trials=trials,
    rounds_max=3,
)
