"""How long a broker takes to open 1,000 partitions, and how long its loop is held meanwhile.

In the loop, one after the other, is what a broker without threads does; it stands beside the other
so that one run shows what the threads are worth.
"""

import asyncio
import time
from functools import partial
from pathlib import Path

from benchmarks.results import Better
from benchmarks.trial import Bench, Measured, Metric, Trial, Workload
from goqueue.config.model import BrokerConfig
from goqueue.runtime.broker import Broker
from goqueue.storage.local import LocalDisk

TOPICS = 10
PARTITIONS = 100
TICK_SECONDS = 0.002
THREADS = {"in threads": BrokerConfig().sync_threads, "in the loop": 0}
READY = Metric(name="ready", unit="ms", better=Better.LOWER)
"""The call of ``Broker.start``."""
HELD = Metric(name="held", unit="ms", better=Better.LOWER)
"""The longest time that the loop ran nothing else."""


def trials(bench: Bench) -> list[Trial]:
    """One data directory that every round opens in both ways."""
    directory = bench.scratch / "start"
    asyncio.run(_fill(directory))
    return [
        Trial(case=case, peer=bench.goqueue.name, measure=partial(start, directory, threads))
        for case, threads in THREADS.items()
    ]


def start(directory: Path, threads: int) -> Measured:
    """Start a broker in this process and measure."""
    return asyncio.run(_start(directory, threads))


async def _fill(directory: Path) -> None:
    broker = Broker(BrokerConfig(data_dir=str(directory)), LocalDisk(directory))
    await broker.start()
    for number in range(TOPICS):
        broker.create_topic(f"topic-{number}", partitions=PARTITIONS)
    await broker.stop()


async def _start(directory: Path, threads: int) -> Measured:
    config = BrokerConfig(data_dir=str(directory), sync_threads=threads)
    broker = Broker(config, LocalDisk(directory))
    pauses: list[float] = []
    watching = asyncio.create_task(_watch(pauses))
    await asyncio.sleep(2 * TICK_SECONDS)
    started = time.perf_counter()
    await broker.start()
    ready_seconds = time.perf_counter() - started
    await asyncio.sleep(2 * TICK_SECONDS)
    watching.cancel()
    await broker.stop()
    return {READY: ready_seconds * 1000, HELD: max(pauses) * 1000}


async def _watch(pauses: list[float]) -> None:
    """Note by how much each tick comes late."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        now = time.perf_counter()
        pauses.append(now - last - TICK_SECONDS)
        last = now


WORKLOAD = Workload(
    name="start",
    title=f"start with {TOPICS * PARTITIONS:,} partitions",
    trials=trials,
    rounds_max=3,
)
