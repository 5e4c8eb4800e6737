"""How old a message is when a follower in another process reads it, at a fixed rate."""

from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection

from benchmarks.pace import Pace
from benchmarks.peers.peer import FOLLOW_SECONDS_MAX, Client, Peer
from benchmarks.percentiles import latency_summary
from benchmarks.trial import P50, P99, Bench, Measured, Trial, Workload

RATE_HZ = 500
VALUE_BYTES = 100
READY = "ready"


def trials(bench: Bench) -> list[Trial]:
    """Every peer has one publisher and one follower on one partition."""
    return [
        Trial(case=f"{RATE_HZ}/s", peer=peer.name, measure=partial(measure, bench, peer))
        for peer in bench.peers
    ]


def measure(bench: Bench, peer: Peer) -> Measured:
    """Publish while another process follows; collect the ages it saw."""
    pace = Pace(rate_hz=RATE_HZ, count=RATE_HZ * bench.options.paced_seconds)
    client = peer.client()
    topic = bench.fresh_topic()
    client.create(topic, partitions=1)
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    follower = context.Process(target=follow, args=(client, topic, pace.count, theirs))
    follower.start()
    theirs.close()
    try:
        assert _receive(ours) == READY
        client.publish_each(topic, pace, value_bytes=VALUE_BYTES)
        ages = _receive(ours)
    finally:
        follower.join(timeout=5)
        follower.kill()
        follower.join()
    client.delete(topic)
    assert isinstance(ages, list)
    assert len(ages) == pace.count, f"followed {len(ages)} of {pace.count} messages"
    summary = latency_summary(ages)
    return {P50: summary["p50"], P99: summary["p99"]}


def follow(client: Client, topic: str, count: int, parent: Connection) -> None:
    """Run in the follower's process: read, then report."""
    ages = client.follow(topic, count=count, ready=lambda: parent.send(READY))
    parent.send(ages)


WORKLOAD = Workload(
    name="end-to-end",
    title=f"from publish to a follower at {RATE_HZ} messages a second",
    trials=trials,
)


def _receive(ours: Connection) -> object:
    if not ours.poll(FOLLOW_SECONDS_MAX):
        raise TimeoutError("the follower said nothing")
    return ours.recv()
