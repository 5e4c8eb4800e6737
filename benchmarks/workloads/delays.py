"""A million messages that wait: how fast they are scheduled, what they weigh, how late they come.

Lateness is taken in a broker in this process, when those who watch a partition are told: what a
consumer on the network sees later than that is its poll, not its delay.
"""

import asyncio
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import uvloop
from pyroaring import BitMap64

import goqueue
from benchmarks.messages import Message
from benchmarks.peers.goqueue import LINGER_MS, GoQueue, GoQueueClient
from benchmarks.peers.peer import PARTITIONS
from benchmarks.percentiles import percentile
from benchmarks.results import Better
from benchmarks.trial import P50, P99, RATE, Bench, Measured, Metric, Trial, Workload
from goqueue.base.grant import BROKER_PUBLISHES
from goqueue.config.model import BrokerConfig
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.topic import Topic
from goqueue.storage.local import LocalDisk

VALUE_BYTES = 100
TOPIC = "delayed"
HOUR_SECONDS = 3_600
DUE_HZ = 10_000
BATCH = 1_000
LEAD_MS = 3_000
"""How long before the first is due the last is published."""
RESIDENT = Metric(name="resident", unit="MB", better=Better.LOWER)
SERVE = Metric(name="serve", unit="ms", better=Better.LOWER)
"""From starting ``goqueue serve`` after a kill to its first answer about what waits."""


def trials(bench: Bench) -> list[Trial]:
    """Schedule many; then let some of as many become due at a steady rate."""
    return [
        Trial(case="schedule", peer=bench.goqueue.name, measure=partial(schedule, bench)),
        Trial(case="due at 10 k/s", peer=bench.goqueue.name, measure=partial(lateness, bench)),
    ]


def schedule(bench: Bench) -> Measured:
    """Publish delayed messages one by one, weigh the broker, kill it and start it again."""
    directory = bench.scratch / "delays"
    broker = GoQueue(directory)
    count = bench.options.messages
    try:
        broker.start()
        broker.client().create(TOPIC, partitions=PARTITIONS)
        seconds = _publish(broker.client(), bench.pool(VALUE_BYTES).take(count))
        resident = broker.rss_bytes() / 1e6
        broker.kill()
        broker = GoQueue(directory)
        start = time.perf_counter()
        broker.start()
        with goqueue.connect(broker.client().address) as client:
            assert client.delayed(TOPIC, skip=count - 1), "all of them wait again"
        serve = time.perf_counter() - start
        # A broker that has just begun holds no buffers yet, so the larger of both is told.
        resident = max(resident, broker.rss_bytes() / 1e6)
    finally:
        broker.kill()
        shutil.rmtree(directory, ignore_errors=True)
    return {RATE: count / seconds, RESIDENT: resident, SERVE: serve * 1_000}


def _publish(client: GoQueueClient, messages: Iterator[Message]) -> float:
    with goqueue.connect(client.address) as connected:
        producer = connected.producer(TOPIC, linger_ms=LINGER_MS)
        send = producer.send
        start = time.perf_counter()
        for number, (key, value) in enumerate(messages):
            send(value, key=key, delay=HOUR_SECONDS + number % HOUR_SECONDS)
        producer.flush()
        seconds = time.perf_counter() - start
        producer.close()
    return seconds


def lateness(bench: Bench) -> Measured:
    """Return how long after its time a message is released, with many more behind it."""
    directory = bench.scratch / "lateness"
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        late_ms = runner.run(_release(bench, directory))
    shutil.rmtree(directory, ignore_errors=True)
    return {P50: percentile(late_ms, 0.50), P99: percentile(late_ms, 0.99)}


async def _release(bench: Bench, directory: Path) -> list[float]:
    broker = Broker(BrokerConfig(data_dir=str(directory)), LocalDisk(directory))
    await broker.start()
    topic = broker.create_topic(TOPIC, partitions=1)
    seconds = bench.options.paced_seconds
    for _ in range(0, bench.options.messages - DUE_HZ * seconds, BATCH):
        await _delay(topic, [time.time_ns() // 1_000 + HOUR_SECONDS * 1_000_000] * BATCH)
    queue = topic.partitions[0].queue
    first = topic.partitions[0].log.end_offset
    start_us = time.time_ns() // 1_000 + LEAD_MS * 1_000
    due_us = [start_us + number * 1_000_000 // DUE_HZ for number in range(DUE_HZ * seconds)]
    for at in range(0, len(due_us), BATCH):
        await _delay(topic, due_us[at : at + BATCH])
    late_ms: list[float] = []
    over = asyncio.get_running_loop().create_future()

    def take(due: BitMap64) -> None:
        now_us = time.time_ns() // 1_000
        late_ms.extend((now_us - due_us[offset - first]) / 1_000 for offset in due)
        if len(late_ms) == len(due_us) and not over.done():
            over.set_result(None)

    queue.watch_due(take)
    await over
    await broker.stop()
    return late_ms


async def _delay(topic: Topic, due_us: list[int]) -> None:
    now_us = time.time_ns() // 1_000
    drafts = [
        Draft(value=bytes(VALUE_BYTES), timestamp_us=now_us, deliver_at_us=when) for when in due_us
    ]
    await topic.publish(BROKER_PUBLISHES, 0, memoryview(frame_drafts(drafts)))


WORKLOAD = Workload(
    name="delays",
    title="delayed messages: scheduling, memory, restart and lateness",
    trials=trials,
    rounds_max=3,
)
