"""What a consumer group feels when a member joins it under load.

Three consumers share twelve partitions, messages come at a fixed rate, a fourth joins. Measured is
how long the partitions that move stand still, and whether the others notice.
"""

import asyncio
import struct
import time
from collections import defaultdict
from functools import partial
from itertools import pairwise

import goqueue.aio
from benchmarks.percentiles import percentile
from benchmarks.results import Better
from benchmarks.trial import Bench, Measured, Metric, Trial, Workload
from goqueue.client.aclient import AsyncClient
from goqueue.client.producers import AsyncProducer

PARTITIONS = 12
MEMBERS = 3
RATE_PER_S = 2_000
SECONDS_BEFORE = 6.0
SECONDS_AFTER = 4.0
TICK_S = 0.01

PAUSE = Metric(name="moved pause", unit="ms", better=Better.LOWER)
BEFORE = Metric(name="others p99 before", unit="ms", better=Better.LOWER)
AFTER = Metric(name="others p99 after", unit="ms", better=Better.LOWER)
_STAMP = struct.Struct(">d")

Arrivals = dict[int, list[tuple[float, float]]]
"""Per partition: when a message came, and how old it was."""


def trials(bench: Bench) -> list[Trial]:
    """Only GoQueue: the question is about its own rebalance."""
    return [Trial(case="a fourth joins", peer="goqueue", measure=partial(measure, bench))]


def measure(bench: Bench) -> Measured:
    """Run the group and compare before with after."""
    return asyncio.run(_measure(bench.goqueue.client().address, bench.fresh_topic()))


async def _measure(address: str, topic: str) -> Measured:
    async with await goqueue.aio.connect(address) as client:
        await client.create_topic(topic, partitions=PARTITIONS)
        arrivals: Arrivals = defaultdict(list)
        owners: dict[int, int] = {}
        members = [
            asyncio.create_task(_consume(address, topic, number, arrivals, owners))
            for number in range(MEMBERS)
        ]
        await asyncio.sleep(1)
        async with client.producer(topic, linger_ms=2) as producer:
            await _publish(producer, SECONDS_BEFORE)
            joined = time.monotonic()
            before = dict(owners)
            members.append(asyncio.create_task(_consume(address, topic, MEMBERS, arrivals, owners)))
            await _publish(producer, SECONDS_AFTER)
        await asyncio.sleep(0.5)
        for member in members:
            member.cancel()
        await asyncio.gather(*members, return_exceptions=True)
        await _check(client, topic, arrivals)
    return _compare(arrivals, before, owners, joined)


async def _consume(
    address: str, topic: str, number: int, arrivals: Arrivals, owners: dict[int, int]
) -> None:
    async with await goqueue.aio.connect(address) as client:
        async for message in client.consumer("bench", [topic]):
            now = time.monotonic()
            (sent,) = _STAMP.unpack(message.value or b"")
            arrivals[message.partition].append((now, now - sent))
            owners[message.partition] = number
            message.ack()


async def _publish(producer: AsyncProducer, seconds: float) -> None:
    started = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - started) < seconds:
        while sent < passed * RATE_PER_S:
            producer.send(_STAMP.pack(time.monotonic()), partition=sent % PARTITIONS)
            sent += 1
        await asyncio.sleep(TICK_S)


async def _check(client: AsyncClient, topic: str, arrivals: Arrivals) -> None:
    ends = await client.offsets(topic)
    for partition, end in ends.items():
        assert len(arrivals[partition]) == end, "each message came once"


def _compare(
    arrivals: Arrivals, before: dict[int, int], after: dict[int, int], joined: float
) -> Measured:
    moved = [partition for partition in before if before[partition] != after[partition]]
    stayed = [partition for partition in before if before[partition] == after[partition]]
    pauses = [
        max(later - earlier for earlier, later in pairwise(times))
        for partition in moved
        if (times := [at for at, _ in arrivals[partition] if at > joined - 0.5])
    ]
    warm = joined - SECONDS_BEFORE / 2
    ages = [(at, age) for partition in stayed for at, age in arrivals[partition] if at > warm]
    assert moved
    assert len(stayed) >= PARTITIONS - PARTITIONS // MEMBERS
    return {
        PAUSE: 1e3 * max(pauses),
        BEFORE: 1e3 * percentile([age for at, age in ages if at < joined], 0.99),
        AFTER: 1e3 * percentile([age for at, age in ages if at >= joined], 0.99),
    }


WORKLOAD = Workload(
    name="rebalance",
    title="a member joins a group of 3 with 12 partitions under load",
    trials=trials,
    rounds_max=3,
)
