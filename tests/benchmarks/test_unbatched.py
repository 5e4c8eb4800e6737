"""Every peer publishes and takes jobs one at a time: what it acknowledged is there, and counted."""

import asyncio
import time
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from benchmarks import crew
from benchmarks.crew import BROKER, CLIENT, Bounds, Clock, Shift
from benchmarks.messages import MessagePool
from benchmarks.peers.goqueue import GoQueue
from benchmarks.peers.peer import PARTITIONS, Peer, SkippedError
from benchmarks.peers.registry import make
from benchmarks.peers.unbatched import Unbatched
from benchmarks.trial import RATE
from benchmarks.workloads import clients, jobs

OTHERS = ("redis", "redis-always", "rabbitmq", "nats")
MESSAGES = list(MessagePool(100).take(60))
WORKERS = 4
NUMBERS = {"rate", "p50", "p99", "client", "broker"}
BOUNDS = Bounds(count=20, seconds=30.0)

names = (f"topic-{number}" for number in count())


def started(name: str, directory: Path) -> Peer:
    try:
        peer = GoQueue(directory) if name == "goqueue" else make(name, directory)
        try:
            peer.start()
        except BaseException:
            peer.stop()
            raise
    except SkippedError as reason:
        pytest.skip(f"{name}: {reason}")
    return peer


def take_one(client: Unbatched, queue: str) -> None:
    with client.workers(queue, count=1) as (take,):
        take()


async def awaited(answer: Awaitable[object]) -> None:
    await answer


@pytest.fixture(scope="module", params=["goqueue", *OTHERS])
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    running = started(request.param, tmp_path_factory.mktemp(request.param))
    yield running
    running.stop()


@pytest.fixture
def client(peer: Peer) -> Unbatched:
    found = peer.unbatched()
    assert found is not None
    return found


@pytest.fixture
def topic(peer: Peer) -> str:
    name = next(names)
    peer.client().create(name, partitions=PARTITIONS)
    return name


@pytest.fixture
def queue(client: Unbatched) -> str:
    name = next(names)
    client.fill(name, MESSAGES, durability="fsync")
    return name


def test_what_was_acknowledged_is_there(peer: Peer, client: Unbatched, topic: str) -> None:
    """A publish that has returned is counted by the broker at once."""
    with client.publisher(topic) as publish:
        for number, message in enumerate(MESSAGES[:5], start=1):
            publish(message)

            assert peer.client().count(topic) == number


def test_handlers_share_a_client(peer: Peer, client: Unbatched, topic: str) -> None:
    """Many tasks publish through one client, and each message is there once."""

    async def publish_all() -> None:
        async with client.publisher_async(topic) as publish, asyncio.TaskGroup() as tasks:
            for message in MESSAGES:
                tasks.create_task(awaited(publish(message)))

    asyncio.run(publish_all())

    assert peer.client().count(topic) == len(MESSAGES)


def test_threads_ack_each_job(client: Unbatched, queue: str) -> None:
    """What workers have taken is acked once; what was sent ahead to them is left."""
    with (
        client.workers(queue, count=WORKERS) as takes,
        ThreadPoolExecutor(WORKERS) as threads,
    ):
        for _ in range(3):
            list(threads.map(lambda take: take(), takes))

    assert client.left(queue) == len(MESSAGES) - 3 * WORKERS


def test_tasks_ack_each_job(client: Unbatched, queue: str) -> None:
    """Workers in tasks leave the same as workers in threads."""

    async def work() -> None:
        async with client.workers_async(queue, count=WORKERS) as takes:
            for _ in range(3):
                await asyncio.gather(*(awaited(take()) for take in takes))

    asyncio.run(work())

    assert client.left(queue) == len(MESSAGES) - 3 * WORKERS


def test_a_queue_can_be_made_again(client: Unbatched, queue: str) -> None:
    """What is removed is gone, with what its workers acked."""
    take_one(client, queue)
    client.remove(queue)
    client.fill(queue, MESSAGES[:7], durability="fsync")
    take_one(client, queue)

    assert client.left(queue) == 6


def test_both_sides_are_measured(peer: Peer, client: Unbatched, topic: str, queue: str) -> None:
    """Publishes and jobs of every peer yield the same numbers, with the processor time of both."""
    for shifts in (
        [clients.Blocking(client=client, topic=topic, bounds=BOUNDS)],
        [
            clients.Tasks(client=client, topic=topic, bounds=BOUNDS, connections=2, handlers=2)
            for _ in range(2)
        ],
        [jobs.Threads(client=client, queue=queue, bounds=BOUNDS)],
        [jobs.Tasks(client=client, queue=queue, bounds=BOUNDS)],
    ):
        done, measured = crew.measure(peer, shifts)

        assert done == BOUNDS.count * len(shifts)
        assert {metric.name for metric in measured} == NUMBERS
        assert measured[RATE] > 0
        assert measured[CLIENT] > 0
        assert measured[BROKER] >= 0


class Ends(Shift):
    """A shift that does nothing and is slow to close."""

    def run(self, clock: Clock) -> list[float]:
        clock.begin()
        clock.end()
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        return [1.0]


def test_closing_costs_nothing(peer: Peer) -> None:
    """What a client does after its end is not in its processor time."""
    _, measured = crew.measure(peer, [Ends()])

    assert measured[CLIENT] < 0.1 * 1e6
    assert measured[RATE] > 10


@pytest.mark.parametrize(("name", "when"), [("redis", "everysec"), ("redis-always", "always")])
def test_redis_syncs_as_it_is_named(name: str, when: str, tmp_path: Path) -> None:
    """The two peers differ by when the append-only file is synced."""
    redis = pytest.importorskip("redis")
    peer = started(name, tmp_path)
    try:
        unbatched = peer.unbatched()
        assert unbatched is not None
        with redis.Redis(port=unbatched.port) as connection:
            settings = connection.config_get("appendfsync")
    finally:
        peer.stop()

    assert settings == {"appendfsync": when}
    assert when in peer.durability


def test_a_lost_connection_fails_what_waits(tmp_path: Path) -> None:
    """A worker of RabbitMQ that waits for a job gets an error when the node is gone."""
    peer = started("rabbitmq", tmp_path)
    unbatched = peer.unbatched()
    assert unbatched is not None
    unbatched.fill("empty", [], durability="")

    async def wait() -> None:
        async with unbatched.workers_async("empty", count=1) as (take,):
            waiting = asyncio.ensure_future(take())
            await asyncio.get_running_loop().run_in_executor(None, peer.kill)
            await waiting

    try:
        with pytest.raises(Exception, match=r"(?i)lost|closed|reset"):
            asyncio.run(asyncio.wait_for(wait(), 60))
    finally:
        peer.stop()


@pytest.mark.parametrize("name", OTHERS)
def test_an_absent_server_is_skipped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a peer is not installed the run says which package it is from."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SkippedError, match=r"not installed"):
        make(name, tmp_path).start()
