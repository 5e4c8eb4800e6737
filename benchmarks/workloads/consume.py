"""How fast one Python consumer works through a queue, one ack per message, also in key order."""

from collections.abc import Callable
from functools import partial

from benchmarks.peers.peer import PARTITIONS, Peer
from benchmarks.trial import RATE, Bench, Measured, Trial, Workload

VALUE_BYTES = 100
PLAIN = "one ack per message"
BY_KEY = "in the order of 10,000 keys"
AS_BY_KEY = "without an order, same settings"


def trials(bench: Bench) -> list[Trial]:
    """Every peer that settles single messages; GoQueue also with its keys in order.

    What suits one order does not suit the other, so the price of keys is measured twice: against
    the settings that suit a loop without them, and against a loop with the same settings.
    """
    plain = [
        Trial(
            case=PLAIN,
            peer=peer.name,
            measure=partial(consume, bench, peer, consumer=peer.client().consume),
        )
        for peer in bench.peers
        if peer.settles_messages
    ]
    client = bench.goqueue.client()
    others = [
        Trial(
            case=case,
            peer=bench.goqueue.name,
            measure=partial(consume, bench, bench.goqueue, consumer=consumer),
        )
        for case, consumer in (
            (AS_BY_KEY, client.consume_as_by_key),
            (BY_KEY, client.consume_by_key),
        )
    ]
    return [*plain, *others]


def consume(bench: Bench, peer: Peer, *, consumer: Callable[..., float]) -> Measured:
    """Fill a topic, then consume it with a new group until everything is acked."""
    topic = bench.fresh_topic()
    client = peer.client()
    client.create(topic, partitions=PARTITIONS)
    messages = peer.load(bench.options.messages)
    client.publish(topic, bench.pool(VALUE_BYTES).take(messages))
    seconds = consumer(topic, count=messages)
    client.delete(topic)
    return {RATE: messages / seconds}


WORKLOAD = Workload(
    name="consume", title="consume messages of 100 B, one ack per message", trials=trials
)
