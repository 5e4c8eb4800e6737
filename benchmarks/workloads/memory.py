"""How much memory a fresh broker holds once a gibibyte went in and came out again."""

import shutil
from functools import partial

from benchmarks.peers.peer import PARTITIONS, Peer
from benchmarks.results import Better
from benchmarks.trial import Bench, Measured, Metric, Trial, Workload

VALUE_BYTES = 1024
SHARE_MIN = 0.05
"""A peer slower than this would need an hour for the volume."""
RESIDENT = Metric(name="resident", unit="MB", better=Better.LOWER)


def trials(bench: Bench) -> list[Trial]:
    """Every peer that can take the volume in reasonable time gets a fresh broker."""
    return [
        Trial(case=_volume(bench), peer=peer.name, measure=partial(measure, bench, peer))
        for peer in bench.peers
        if peer.load_share >= SHARE_MIN
    ]


def measure(bench: Bench, running: Peer) -> Measured:
    """Publish and read the volume, then weigh the broker."""
    directory = bench.scratch / f"memory-{running.name}"
    peer = type(running)(directory)
    topic = bench.fresh_topic()
    messages = bench.options.volume_bytes // VALUE_BYTES
    try:
        peer.start()
        client = peer.client()
        client.create(topic, partitions=PARTITIONS)
        client.publish(topic, bench.pool(VALUE_BYTES).take(messages))
        client.read(topic, count=messages)
        return {RESIDENT: peer.rss_bytes() / 1e6}
    finally:
        peer.stop()
        shutil.rmtree(directory, ignore_errors=True)


WORKLOAD = Workload(
    name="memory",
    title="resident memory of the broker after publishing and reading",
    trials=trials,
    rounds_max=1,
)


def _volume(bench: Bench) -> str:
    return f"{bench.options.volume_bytes >> 20} MiB"
