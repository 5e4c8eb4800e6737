"""How fast one Python producer publishes, calling ``send`` once per message."""

from functools import partial

from benchmarks.peers.peer import PARTITIONS, Peer
from benchmarks.trial import RATE, Bench, Measured, Trial, Workload

SIZES = {"100 B": 100, "1 KiB": 1024}


def trials(bench: Bench) -> list[Trial]:
    """Every peer publishes messages of every size to a topic with three partitions."""
    return [
        Trial(
            case=case,
            peer=peer.name,
            measure=partial(publish, bench, peer, value_bytes=value_bytes),
        )
        for case, value_bytes in SIZES.items()
        for peer in bench.peers
    ]


def publish(
    bench: Bench, peer: Peer, *, value_bytes: int, partitions: int = PARTITIONS
) -> Measured:
    """Publish one load and check that the broker has all of it."""
    topic = bench.fresh_topic()
    client = peer.client()
    client.create(topic, partitions=partitions)
    # A kibibyte costs ten times the copying, so fewer of them make a round of the same length.
    messages = peer.load(bench.options.messages * 100 // max(100, value_bytes // 2))
    seconds = client.publish(topic, bench.pool(value_bytes).take(messages))
    found = client.count(topic)
    client.delete(topic)
    assert found == messages, f"published {messages}, found {found}"
    return {RATE: messages / seconds}


WORKLOAD = Workload(
    name="publish",
    title="publish with keys, one producer, three partitions",
    trials=trials,
)
