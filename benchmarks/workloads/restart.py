"""How long a broker takes to open its data, for partitions of growing size, after a kill -9."""

import time
from functools import partial
from pathlib import Path

import goqueue
from benchmarks import disk
from benchmarks.options import MEBIBYTE
from benchmarks.pace import Pace
from benchmarks.peers.goqueue import GoQueue
from benchmarks.results import Better
from benchmarks.trial import Bench, Measured, Metric, Trial, Workload

SIZES_MIB = (0, 64, 256, 1024)
SIZES_MIB_QUICK = (0, 64, 256)
VALUE_BYTES = 1024
TOPIC = "log"
SERVE = Metric(name="serve", unit="ms", better=Better.LOWER)
"""From starting ``goqueue serve`` to its first acknowledged publish, the interpreter included."""
OPEN = Metric(name="open", unit="ms", better=Better.LOWER)
"""The call of ``goqueue.open`` on the same data in this process."""


def trials(bench: Bench) -> list[Trial]:
    """One data directory per size, filled once and opened in every round."""
    sizes = SIZES_MIB_QUICK if bench.options.quick else SIZES_MIB
    found = []
    for size_mib in sizes:
        directory = bench.scratch / f"restart-{size_mib}"
        fill(bench, directory, size_mib=size_mib)
        measure = partial(restart, directory)
        found.append(Trial(case=f"{size_mib} MiB", peer=bench.goqueue.name, measure=measure))
    return found


def fill(bench: Bench, directory: Path, *, size_mib: int) -> None:
    """Publish so much to one partition, then kill the broker."""
    broker = GoQueue(directory)
    try:
        broker.start()
        client = broker.client()
        client.create(TOPIC, partitions=1)
        messages = size_mib * MEBIBYTE // VALUE_BYTES
        client.publish(TOPIC, bench.pool(VALUE_BYTES).take(messages))
    finally:
        broker.kill()


def restart(directory: Path) -> Measured:
    """Start the broker on cold files, kill it, and open the same files in this process."""
    broker = GoQueue(directory)
    disk.forget_cached(directory)
    start = time.perf_counter()
    try:
        broker.start()
        broker.client().publish_each(TOPIC, Pace(rate_hz=1, count=1), value_bytes=VALUE_BYTES)
        serve_seconds = time.perf_counter() - start
    finally:
        broker.kill()
    disk.forget_cached(directory)
    start = time.perf_counter()
    with goqueue.open(str(broker.data)):
        open_seconds = time.perf_counter() - start
    return {SERVE: serve_seconds * 1000, OPEN: open_seconds * 1000}


WORKLOAD = Workload(
    name="restart",
    title="restart after a kill against the size of a partition, cold page cache",
    trials=trials,
)
