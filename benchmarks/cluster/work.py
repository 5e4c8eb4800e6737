"""The same work with one replica, with three, and on one broker by itself: rates and their cost."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import goqueue
from benchmarks.cluster.fleet import NODES, VALUE, Fleet, middle

KEYS = 997
SINGLES = 300

Found = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Who does the work: a fleet, and how many replicas its topics have."""

    name: str
    fleet: Fleet
    client: goqueue.Client
    factor: int | None

    def create(self, topic: str) -> None:
        """Make a topic of as many partitions as there are nodes elsewhere."""
        if self.factor is None:
            self.client.create_topic(topic, partitions=NODES)
            return
        self.client.create_topic(topic, partitions=NODES, replication_factor=self.factor)
        self.fleet.until_in_sync(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one piece of work took."""

    rate: float
    broker_us: float
    """Processor time of a message, of all nodes together."""
    syncs: float
    """Syncs of a message, of all nodes together."""
    p50_ms: float = 0.0


def _measure(side: Side, messages: int, work: Callable[[], list[float]]) -> Measured:
    before, began = side.fleet.cost(), time.monotonic()
    times = work()
    seconds = time.monotonic() - began
    cost = side.fleet.cost().since(before)
    return Measured(
        rate=messages / seconds,
        broker_us=cost.processor_seconds * 1e6 / messages,
        syncs=cost.syncs / messages,
        p50_ms=middle(times) * 1_000 if times else 0.0,
    )


def publish(side: Side, topic: str, messages: int) -> Measured:
    """Publish with one producer."""

    def work() -> list[float]:
        with side.client.producer(topic) as producer:
            for number in range(messages):
                producer.send(VALUE, key=b"%d" % (number % KEYS))
        return []

    return _measure(side, messages, work)


def publish_singly(side: Side, topic: str) -> Measured:
    """Publish one message after the other."""

    def work() -> list[float]:
        times: list[float] = []
        with side.client.producer(topic) as producer:
            for _ in range(SINGLES):
                began = time.perf_counter()
                producer.publish(VALUE, partition=0)
                times.append(time.perf_counter() - began)
        return times

    return _measure(side, SINGLES, work)


def consume(side: Side, topic: str, messages: int) -> Measured:
    """Lease and acknowledge every message."""

    def work() -> list[float]:
        count = 0
        with side.client.consumer(f"{topic}-group", [topic]) as consumer:
            while count < messages:
                batch = consumer.poll(max_messages=1_000, timeout=5.0)
                for message in batch:
                    message.ack()
                count += len(batch)
            consumer.flush()
        return []

    return _measure(side, messages, work)


def read(side: Side, topic: str, messages: int) -> Measured:
    """Read everything from the beginning."""

    def work() -> list[float]:
        count = 0
        for _ in side.client.read(topic):
            count += 1
        assert count >= messages, "everything is read"
        return []

    return _measure(side, messages, work)


def compare(sides: list[Side], *, messages: int, rounds: int) -> Found:
    """Have each side do the same work, in turn; the best of each is compared."""
    rows: dict[tuple[str, str], list[Measured]] = {}
    for turn in range(rounds):
        for side in sides:
            topic = f"{side.name}-{turn}".replace(" ", "-")
            side.create(topic)
            found = {
                "publish": publish(side, topic, messages),
                "consume": consume(side, topic, messages),
                "read": read(side, topic, messages),
                "publish one at a time": publish_singly(side, topic),
            }
            for what, measured in found.items():
                rows.setdefault((what, side.name), []).append(measured)
            side.client.delete_topic(topic)
    return {
        f"{what}, {name}": {
            "messages/s": [round(one.rate) for one in measured],
            "broker us/message": [round(one.broker_us, 1) for one in measured],
            "syncs/message": round(middle([one.syncs for one in measured]), 4),
            **(
                {"p50 ms": [round(one.p50_ms, 2) for one in measured]} if measured[0].p50_ms else {}
            ),
        }
        for (what, name), measured in rows.items()
    } | {
        f"{what}: {over.name} / {under.name}, rate": round(
            max(one.rate for one in rows[what, over.name])
            / max(one.rate for one in rows[what, under.name]),
            2,
        )
        for over, under in _pairs(sides)
        for what in ("publish", "consume", "read", "publish one at a time")
    }


def _pairs(sides: list[Side]) -> list[tuple[Side, Side]]:
    return [(sides[-1], one) for one in sides[:-1]]
