"""How fast 16 workers get through a queue when each takes one job at a time and acks it."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import uvloop

from benchmarks import crew
from benchmarks.crew import Bounds, Clock, Shift
from benchmarks.peers.peer import Peer
from benchmarks.peers.unbatched import AsyncTake, Take, Unbatched
from benchmarks.trial import Bench, Measured, Trial, Workload

WORKERS = 16
VALUE_BYTES = 100
SPARE_JOBS = 20 * WORKERS
"""Jobs beyond those that are counted, so that no worker waits for the last ones of the others."""
THREADS = f"{WORKERS} threads"
TASKS = f"{WORKERS} tasks"
DURABILITIES = ("fsync", "os")


def trials(bench: Bench) -> list[Trial]:
    """Every peer in threads and in tasks; GoQueue also without waiting for the disk."""
    found = []
    for case, shift in ((THREADS, Threads), (TASKS, Tasks)):
        for peer in bench.peers:
            client = peer.unbatched()
            if client is None:
                continue
            for durability in DURABILITIES if peer is bench.goqueue else ("",):
                named = without_sync(case) if durability == "os" else case
                measure = partial(work, bench, peer, client, shift=shift, durability=durability)
                found.append(Trial(case=named, peer=peer.name, measure=measure))
    return found


def without_sync(case: str) -> str:
    """Name the case in which GoQueue does not wait for the disk."""
    return f"{case}, durability=os"


def work(
    bench: Bench,
    peer: Peer,
    client: Unbatched,
    *,
    shift: "type[Threads | Tasks]",
    durability: str,
) -> Measured:
    """Publish the jobs, let the workers have them, and check what they have left."""
    queue = bench.fresh_topic()
    bounds = _bounds(bench)
    jobs = bounds.count + SPARE_JOBS
    client.fill(queue, bench.pool(VALUE_BYTES).take(jobs), durability=durability)
    done, measured = crew.measure(peer, [shift(client=client, queue=queue, bounds=bounds)])
    left = client.left(queue)
    client.remove(queue)
    assert left == jobs - done, f"{left} of {jobs} jobs are left after {done} were acked"
    return measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads(Shift):
    """Workers in threads of one process."""

    client: Unbatched
    queue: str
    bounds: Bounds

    def run(self, clock: Clock) -> list[float]:
        """Take jobs until the time is over or all are taken."""
        latencies: list[float] = []
        permits = iter(range(self.bounds.count))
        with (
            self.client.workers(self.queue, count=WORKERS) as takes,
            ThreadPoolExecutor(WORKERS) as threads,
        ):
            until = clock.begin() + self.bounds.seconds
            list(threads.map(partial(_work, permits, until, latencies), takes))
            clock.end()
        return latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks(Shift):
    """Workers in tasks of one event loop."""

    client: Unbatched
    queue: str
    bounds: Bounds

    def run(self, clock: Clock) -> list[float]:
        """Take jobs until the time is over or all are taken."""
        return uvloop.run(self._run(clock))

    async def _run(self, clock: Clock) -> list[float]:
        latencies: list[float] = []
        permits = iter(range(self.bounds.count))
        async with self.client.workers_async(self.queue, count=WORKERS) as takes:
            until = clock.begin() + self.bounds.seconds
            async with asyncio.TaskGroup() as tasks:
                for take in takes:
                    tasks.create_task(_work_async(permits, until, latencies, take))
            clock.end()
        return latencies


def _work(permits: Iterator[int], until: float, latencies: list[float], take: Take) -> None:
    now = time.monotonic
    before = now()
    for _ in permits:
        take()
        after = now()
        latencies.append(after - before)
        before = after
        if after >= until:
            break


async def _work_async(
    permits: Iterator[int], until: float, latencies: list[float], take: AsyncTake
) -> None:
    now = time.monotonic
    before = now()
    for _ in permits:
        await take()
        after = now()
        latencies.append(after - before)
        before = after
        if after >= until:
            break


def _bounds(bench: Bench) -> Bounds:
    # One job is two waits for the disk: a small part of the load lasts as long.
    return Bounds(
        count=max(1000, bench.options.messages // 25), seconds=bench.options.trial_seconds
    )


WORKLOAD = Workload(
    name="jobs", title=f"{WORKERS} workers, each taking and acking one job at a time", trials=trials
)
