"""What one awaited publish costs: from one connection to hundreds, and shared by many handlers."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import uvloop

from benchmarks import crew, disk
from benchmarks.crew import Bounds, Clock, Shift
from benchmarks.http_client import HttpConnection, post
from benchmarks.messages import MessagePool
from benchmarks.peers.peer import PARTITIONS, Peer
from benchmarks.peers.unbatched import AsyncPublish, Unbatched
from benchmarks.percentiles import latency_summary
from benchmarks.trial import P50, P99, RATE, Bench, Measured, Trial, Workload

PROCESSES = 2
CONNECTIONS = (2, 8, 64, 256)
HANDLERS = (8, 64)
HTTP_CONNECTIONS = 64
VALUE_BYTES = 100
ONE_SYNC = "one at a time, publish"
ONE_ASYNC = "one at a time, async"
HTTP = f"HTTP, {HTTP_CONNECTIONS} connections"
DISK = "fdatasync"

Item = TypeVar("Item")
"""What is sent: a message, or a request of HTTP."""


def trials(bench: Bench) -> list[Trial]:
    """Every peer in every case; GoQueue also by HTTP, and the disk by itself."""
    found = []
    for case, shifts in _cases().items():
        if case in (ONE_SYNC, ONE_ASYNC):
            found.append(Trial(case=case, peer=DISK, measure=partial(sync, bench)))
        for peer in bench.peers:
            client = peer.unbatched()
            if client is not None:
                measure = partial(publish, bench, peer, client, shifts=shifts)
                found.append(Trial(case=case, peer=peer.name, measure=measure))
    found.append(Trial(case=HTTP, peer=bench.goqueue.name, measure=partial(publish_http, bench)))
    return found


def connections_case(count: int) -> str:
    """Name the case of so many connections."""
    return f"{count} connections"


def handlers_case(count: int) -> str:
    """Name the case of so many handlers with one client."""
    return f"{count} handlers, one client"


Shifts = Callable[[Unbatched, str, Bounds], list[Shift]]


def _cases() -> dict[str, Shifts]:
    cases: dict[str, Shifts] = {ONE_SYNC: _blocking, ONE_ASYNC: partial(_tasks, (1,), 1)}
    for handlers in HANDLERS:
        cases[handlers_case(handlers)] = partial(_tasks, (1,), handlers)
    for connections in CONNECTIONS:
        cases[connections_case(connections)] = partial(_tasks, _spread(connections), 1)
    return cases


def publish(bench: Bench, peer: Peer, client: Unbatched, *, shifts: Shifts) -> Measured:
    """Publish to a topic of its own and check that the broker has everything."""
    topic = bench.fresh_topic()
    whole = peer.client()
    whole.create(topic, partitions=PARTITIONS)
    done, measured = crew.measure(peer, shifts(client, topic, _bounds(bench)))
    found = whole.count(topic)
    whole.delete(topic)
    assert found == done, f"published {done}, found {found}"
    return measured


def publish_http(bench: Bench) -> Measured:
    """Post one message at a time on each of many connections."""
    topic = bench.fresh_topic()
    client = bench.goqueue.client()
    client.create(topic, partitions=PARTITIONS)
    shifts = [
        Posts(port=client.http_port, topic=topic, bounds=_bounds(bench), connections=connections)
        for connections in _spread(HTTP_CONNECTIONS)
    ]
    done, measured = crew.measure(bench.goqueue, shifts)
    found = client.count(topic)
    client.delete(topic)
    assert found == done, f"published {done}, found {found}"
    return measured


def sync(bench: Bench) -> Measured:
    """Append and fdatasync, one after the other on the same disk."""
    bounds = _bounds(bench)
    path = bench.scratch / "fdatasync.clients"
    latencies: list[float] = []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        started = before = time.monotonic()
        while before < started + bounds.seconds and len(latencies) < bounds.count:
            os.write(file, disk.APPEND)
            os.fdatasync(file)
            after = time.monotonic()
            latencies.append(after - before)
            before = after
    finally:
        os.close(file)
        path.unlink()
    latency = latency_summary(latencies)
    return {RATE: len(latencies) / (before - started), P50: latency["p50"], P99: latency["p99"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking(Shift):
    """One thread that waits for each message."""

    client: Unbatched
    topic: str
    bounds: Bounds

    def run(self, clock: Clock) -> list[float]:
        """Publish until the time is over."""
        latencies: list[float] = []
        messages = MessagePool(VALUE_BYTES).take(self.bounds.count)
        now = time.monotonic
        with self.client.publisher(self.topic) as call:
            before = clock.begin()
            until = before + self.bounds.seconds
            for message in messages:
                call(message)
                after = now()
                latencies.append(after - before)
                before = after
                if after >= until:
                    break
            clock.end()
        return latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks(Shift):
    """An event loop with clients, and tasks that each wait for one message through one of them."""

    client: Unbatched
    topic: str
    bounds: Bounds
    connections: int
    handlers: int
    """Tasks to a connection."""

    def run(self, clock: Clock) -> list[float]:
        """Publish until the time is over."""
        return uvloop.run(self._run(clock))

    async def _run(self, clock: Clock) -> list[float]:
        messages = MessagePool(VALUE_BYTES).take(self.bounds.count)
        async with AsyncExitStack() as stack:
            calls: list[AsyncPublish] = []
            for _ in range(self.connections):
                call = await stack.enter_async_context(self.client.publisher_async(self.topic))
                calls += [call] * self.handlers
            return await _publish(calls, messages, self.bounds, clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posts(Shift):
    """An event loop with connections of HTTP, each with one request at a time."""

    port: int
    topic: str
    bounds: Bounds
    connections: int

    def run(self, clock: Clock) -> list[float]:
        """Post requests that were made beforehand until the time is over."""
        return uvloop.run(self._run(clock))

    async def _run(self, clock: Clock) -> list[float]:
        path = f"/topics/{self.topic}/messages"
        pool = MessagePool(VALUE_BYTES).take_text(self.bounds.count)
        requests = iter([post(path, _body(key, value)) for key, value in pool])
        opened = [await HttpConnection.open(self.port) for _ in range(self.connections)]
        calls = [_checking(connection) for connection in opened]
        latencies = await _publish(calls, requests, self.bounds, clock)
        for connection in opened:
            connection.close()
        return latencies


async def _publish(
    calls: Sequence[Callable[[Item], Awaitable[object]]],
    items: Iterator[Item],
    bounds: Bounds,
    clock: Clock,
) -> list[float]:
    """Let every call have the next item whenever it is done with the one before."""
    latencies: list[float] = []
    now = time.monotonic
    started = clock.begin()
    until = started + bounds.seconds

    async def repeat(call: Callable[[Item], Awaitable[object]]) -> None:
        before = started
        for item in items:
            await call(item)
            after = now()
            latencies.append(after - before)
            before = after
            if after >= until:
                break

    async with asyncio.TaskGroup() as tasks:
        for call in calls:
            tasks.create_task(repeat(call))
    clock.end()
    return latencies


def _checking(connection: HttpConnection) -> Callable[[bytes], Awaitable[None]]:
    async def ask(request: bytes) -> None:
        answer = await connection.ask(request)
        assert b'"error"' not in answer, f"refused: {answer!r}"

    return ask


def _body(key: str, value: str) -> bytes:
    return json.dumps({"messages": [{"key": key, "value": value}]}).encode()


def _blocking(client: Unbatched, topic: str, bounds: Bounds) -> list[Shift]:
    return [Blocking(client=client, topic=topic, bounds=bounds)]


def _tasks(
    connections: Sequence[int], handlers: int, client: Unbatched, topic: str, bounds: Bounds
) -> list[Shift]:
    """Return one process for each number of connections."""
    return [
        Tasks(client=client, topic=topic, bounds=bounds, connections=count, handlers=handlers)
        for count in connections
    ]


def _spread(connections: int) -> list[int]:
    """Return how many connections each process has."""
    return [connections // PROCESSES] * PROCESSES


def _bounds(bench: Bench) -> Bounds:
    return Bounds(count=bench.options.messages // 10, seconds=bench.options.trial_seconds)


WORKLOAD = Workload(
    name="clients", title="publish 100 B, each caller awaiting one at a time", trials=trials
)
