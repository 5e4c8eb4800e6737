"""How long one publish takes to be acknowledged at 1000 a second, beside the bare disk."""

from collections.abc import Callable
from functools import partial

from benchmarks import disk
from benchmarks.pace import Pace
from benchmarks.peers.peer import PARTITIONS, Client
from benchmarks.percentiles import latency_summary
from benchmarks.trial import P50, P99, Bench, Measured, Trial, Workload

RATE_HZ = 1000
VALUE_BYTES = 100
DISK = "fdatasync"


def trials(bench: Bench) -> list[Trial]:
    """Every peer publishes one at a time; GoQueue also on schedule, and the disk just syncs."""
    pace = Pace(rate_hz=RATE_HZ, count=RATE_HZ * bench.options.paced_seconds)
    found = [Trial(case="disk", peer=DISK, measure=partial(sync, bench, pace))]
    for peer in bench.peers:
        client = peer.client()
        measure = partial(publish, bench, client, pace, publisher=client.publish_each)
        found.append(Trial(case="one at a time", peer=peer.name, measure=measure))
    ours = bench.goqueue.client()
    measure = partial(publish, bench, ours, pace, publisher=ours.publish_each_async)
    found.append(Trial(case="async", peer=bench.goqueue.name, measure=measure))
    return found


def publish(
    bench: Bench, client: Client, pace: Pace, *, publisher: Callable[..., list[float]]
) -> Measured:
    """Publish at the pace to a topic of its own."""
    topic = bench.fresh_topic()
    client.create(topic, partitions=PARTITIONS)
    summary = latency_summary(publisher(topic, pace, value_bytes=VALUE_BYTES))
    client.delete(topic)
    return {P50: summary["p50"], P99: summary["p99"]}


def sync(bench: Bench, pace: Pace) -> Measured:
    """Append and fdatasync at the same pace on the same disk."""
    summary = latency_summary(disk.fdatasync_seconds(bench.scratch, pace))
    return {P50: summary["p50"], P99: summary["p99"]}


WORKLOAD = Workload(
    name="latency",
    title=f"publish latency at {RATE_HZ} messages a second",
    trials=trials,
)
