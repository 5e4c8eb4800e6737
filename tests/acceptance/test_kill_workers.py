"""Real consumers are killed: others have their partitions and their messages within seconds."""

import random
import sys
import threading
import time
from pathlib import Path

import pytest

import goqueue
from goqueue.wire.queue_calls import Progress
from tests.acceptance.served import Served
from tests.acceptance.worker import WorkerProcess

PARTITIONS = 4
MESSAGES = 40
SECONDS_MAX = 60
TAKEOVER_SECONDS_MAX = 15
"""Generous for a slow machine, and far below the session timeout and the leases (30 s each)."""
KILLS = 4
TOPIC = "orders"
GROUP = "billing"


def publish(client: goqueue.Client, first: int, count: int) -> list[str]:
    """Publish numbered messages to all partitions in turn; return their values."""
    values = [f"m{number}" for number in range(first, first + count)]
    with client.producer(TOPIC) as producer:
        for number, value in enumerate(values):
            producer.send(value.encode(), partition=number % PARTITIONS)
    return values


def wait_until_shared_out(client: goqueue.Client, *, mode: str, members: int) -> None:
    """Return when so many members have their partitions."""
    pause = threading.Event()
    for _ in range(SECONDS_MAX * 50):
        group = client.describe_group(GROUP)
        owned = [sum(len(one.partitions) for one in m.assignments) for m in group.members]
        whole = PARTITIONS if mode == "shared" else PARTITIONS // members
        if owned == [whole] * members:
            return
        pause.wait(0.02)
    raise AssertionError(f"not shared out: {client.describe_group(GROUP)}")


def settled(client: goqueue.Client) -> list[Progress]:
    """Return how far the group is when everything is settled."""
    deadline = time.monotonic() + SECONDS_MAX
    pause = threading.Event()
    progress = client.group_progress(GROUP)
    while any(part.lag or part.in_flight or part.waiting for part in progress):
        assert time.monotonic() < deadline, f"not settled: {progress}"
        pause.wait(0.05)
        progress = client.group_progress(GROUP)
    return progress


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_a_killed_consumer_is_replaced_within_seconds(tmp_path: Path, mode: str) -> None:
    """With the default grace of 2 s, and leases and sessions of 30 s."""
    with Served(tmp_path / "data") as broker, goqueue.connect(broker.address) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        victim = WorkerProcess(broker.address, GROUP, TOPIC, "hold", mode=mode)
        victim.wait_until_joined(SECONDS_MAX)
        survivor = WorkerProcess(broker.address, GROUP, TOPIC, "ack", mode=mode)
        survivor.wait_until_joined(SECONDS_MAX)
        try:
            wait_until_shared_out(client, mode=mode, members=2)
            held = set(publish(client, 0, MESSAGES))
            pause = threading.Event()
            while not victim.seen or len(victim.seen.keys() | survivor.seen.keys()) < MESSAGES:
                pause.wait(0.01)
                if mode == "shared" and len(survivor.seen) == MESSAGES:
                    # The other was faster than the victim: once more.
                    held |= set(publish(client, len(held), MESSAGES))
            killed_at = victim.kill()
            later = publish(client, len(held), PARTITIONS)
            took = survivor.wait_for([*victim.seen, *later], SECONDS_MAX) - killed_at
            print(f"{mode}: takeover after {took:.2f} s", file=sys.stderr)  # noqa: T201 - a measure
            failures = [part.dead for part in client.group_progress(GROUP)]
        finally:
            victim.kill()
            survivor.kill()

    assert took < TAKEOVER_SECONDS_MAX
    assert not any(failures)


@pytest.mark.parametrize(("mode", "grace"), [("exclusive", 0), ("exclusive", 2), ("shared", 0)])
def test_nothing_is_lost_over_kills_of_consumers(tmp_path: Path, mode: str, grace: int) -> None:
    """P2: every message is handled and settled once by somebody, whoever dies meanwhile."""
    dice = random.Random(grace)
    options = {"mode": mode, "disconnect_grace": grace, "max_retries": 100, "prefetch": 20}
    with Served(tmp_path / "data") as broker, goqueue.connect(broker.address) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)

        def begin() -> WorkerProcess:
            worker = WorkerProcess(broker.address, GROUP, TOPIC, "ack", **options)
            worker.wait_until_joined(SECONDS_MAX)
            return worker

        workers = [begin(), begin()]
        seen: set[str] = set()
        sent: list[str] = []
        try:
            for _ in range(KILLS):
                sent += publish(client, len(sent), 200)
                doomed = workers.pop(dice.randrange(2))
                doomed.wait_for_some(dice.randrange(1, 30), SECONDS_MAX)
                doomed.kill()
                seen |= doomed.seen.keys()
                workers.append(begin())
            sent += publish(client, len(sent), 200)
            progress = settled(client)
        finally:
            for worker in workers:
                worker.kill()
        for worker in workers:
            seen |= worker.seen.keys()

    assert not any(part.dead for part in progress)
    assert seen == set(sent)
