"""How fast one Python reader gets a topic back, as message objects and as Arrow batches."""

from collections.abc import Callable
from functools import partial

from benchmarks.peers.peer import PARTITIONS, Client, Peer
from benchmarks.trial import RATE, Bench, Measured, Trial, Workload

VALUE_BYTES = 100


def trials(bench: Bench) -> list[Trial]:
    """Every peer gives objects; GoQueue also gives the batches it stores."""
    objects = [
        Trial(
            case="objects",
            peer=peer.name,
            measure=partial(read, bench, peer, reader=peer.client().read),
        )
        for peer in bench.peers
    ]
    batches = Trial(
        case="arrow",
        peer=bench.goqueue.name,
        measure=partial(read, bench, bench.goqueue, reader=bench.goqueue.client().read_batches),
    )
    return [*objects, batches]


def read(bench: Bench, peer: Peer, *, reader: Callable[..., float]) -> Measured:
    """Fill a topic, then read it from the start."""
    topic = bench.fresh_topic()
    client: Client = peer.client()
    client.create(topic, partitions=PARTITIONS)
    messages = peer.load(bench.options.messages)
    client.publish(topic, bench.pool(VALUE_BYTES).take(messages))
    seconds = reader(topic, count=messages)
    client.delete(topic)
    return {RATE: messages / seconds}


WORKLOAD = Workload(name="read", title="read back messages of 100 B", trials=trials)
