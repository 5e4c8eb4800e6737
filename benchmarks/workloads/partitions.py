"""How the publish rate holds up as a topic gets more partitions."""

from functools import partial

from benchmarks.trial import Bench, Trial, Workload
from benchmarks.workloads.publish import publish

COUNTS = (1, 3, 30, 300, 1000)
VALUE_BYTES = 100


def trials(bench: Bench) -> list[Trial]:
    """Let the peers that have partitions publish to topics with ever more of them."""
    return [
        Trial(
            case=f"{count}",
            peer=peer.name,
            measure=partial(publish, bench, peer, value_bytes=VALUE_BYTES, partitions=count),
        )
        for count in COUNTS
        for peer in bench.peers
        if peer.partitioned
    ]


WORKLOAD = Workload(
    name="partitions",
    title="publish 100 B with keys against the number of partitions",
    trials=trials,
    rounds_max=3,
)
