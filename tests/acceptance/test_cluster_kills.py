"""Real nodes are killed again and again while the cluster is published to and read from."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

import goqueue
from goqueue.base.errors import GoQueueError
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.client.producer.pile import SendFuture
from goqueue.core.producers.partitioner import partition_of_key
from goqueue.testing.log_checker import LogChecker
from tests.acceptance.clustered import Clustered

KILLS = int(os.environ.get("GOQUEUE_CLUSTER_KILLS", "2"))
PARTITIONS = 6
KEYS = 48
TOPIC = TopicName("orders")
QUICK = {
    "GOQUEUE_CLUSTER_HEARTBEAT_INTERVAL": "500ms",
    "GOQUEUE_CLUSTER_SUSPECT_TIMEOUT": "1s",
    "GOQUEUE_CLUSTER_DEAD_TIMEOUT": "2s",
}
TAKEOVER_SECONDS_MAX = 30
"""Far more than it takes: this machine may be busy. The figures themselves are printed."""


class Load(threading.Thread):
    """Publishes numbered messages until told to stop, and remembers every future."""

    def __init__(self, client: goqueue.Client, name: str) -> None:
        super().__init__(name=name)
        self._producer = client.producer(TOPIC, linger_ms=1, buffer_bytes=1 << 20)
        self._over = threading.Event()
        self.sent: list[tuple[bytes, SendFuture]] = []
        self.acked_at: dict[int, float] = {}
        """When each partition last acknowledged a message."""

    def run(self) -> None:
        """Send in small bursts, so that a kill finds requests at every stage."""
        number = 0
        while not self._over.wait(0.01):
            for _ in range(10):
                payload = f"{self.name}-{number}".encode()
                future = self._producer.send(payload, key=key_of(payload))
                future.add_done_callback(self._note)
                self.sent.append((payload, future))
                number += 1

    def _note(self, future: SendFuture) -> None:
        if future.exception() is None:
            self.acked_at[future.result().partition] = time.monotonic()

    def finish(self) -> None:
        """Stop sending and wait until every message is settled."""
        self._over.set()
        self.join()
        self._producer.flush(timeout=60)


class Follower(threading.Thread):
    """Reads along; what it saw must still be there afterwards."""

    def __init__(self, client: goqueue.Client) -> None:
        super().__init__(name="follower", daemon=True)
        self._messages = client.read(TOPIC, follow=True)
        self.seen: list[tuple[int, int, bytes]] = []

    def run(self) -> None:
        """Read until the client is closed."""
        try:
            for message in self._messages:
                assert message.value is not None
                self.seen.append((message.partition, message.offset, message.value))
        except GoQueueError:
            return


def key_of(payload: bytes) -> bytes:
    return b"key-%d" % (int(payload.rpartition(b"-")[2]) % KEYS)


def place_of(payload: bytes) -> TopicPartition:
    return TopicPartition(TOPIC, partition_of_key(key_of(payload), PARTITIONS))


def takeover(load: Load, killed: float) -> float:
    """Return after how long every partition has acknowledged a message again."""
    pause = threading.Event()
    while not all(load.acked_at.get(one, 0.0) > killed for one in range(PARTITIONS)):
        assert time.monotonic() - killed < TAKEOVER_SECONDS_MAX, load.acked_at
        pause.wait(0.01)
    return time.monotonic() - killed


@pytest.mark.slow
def test_a_cluster_loses_nothing_while_its_nodes_are_killed(tmp_path: Path) -> None:
    """P1, P3, P7: what was acknowledged is there once, in order; readers saw nothing else."""
    chance = random.Random(16)
    took: list[float] = []
    with Clustered(tmp_path, **QUICK) as cluster:
        names = list(cluster.nodes)
        for name in names:
            cluster.start(name)
        cluster.until_alive(names)
        with goqueue.connect(cluster.addresses, timeout=60) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS)
            load, follower = Load(client, "p"), Follower(client)
            load.start()
            follower.start()
            for _ in range(KILLS):
                cluster.until_in_sync(TOPIC, PARTITIONS)
                victim = chance.choice(names)
                killed = time.monotonic()
                cluster.nodes[victim].end(signal.SIGKILL)
                took.append(takeover(load, killed))
                cluster.start(victim)
            load.finish()
            cluster.until_in_sync(TOPIC, PARTITIONS)
            findings = judge(client, load, follower)
        print("takeover after kill -9:", " ".join(f"{one:.2f} s" for one in took))  # noqa: T201

        assert findings == []


def judge(client: goqueue.Client, load: Load, follower: Follower) -> list[str]:
    """Return every promise that was broken, by all that was sent and read."""
    checker = LogChecker()
    for payload, future in load.sent:
        checker.sent(place_of(payload), payload, producer=load.name)
        placed = future.result()
        checker.acked(place_of(payload), placed.offset, payload)
    seen: dict[int, list[tuple[int, bytes]]] = {one: [] for one in range(PARTITIONS)}
    for message in client.read(TOPIC):
        assert message.value is not None
        seen[message.partition].append((message.offset, message.value))
    for number, rows in seen.items():
        where = TopicPartition(TOPIC, PartitionId(number))
        checker.read(where, rows, start_offset=0, end_offset=len(rows))
    there = {(number, offset): value for number, rows in seen.items() for offset, value in rows}
    broken = [str(one) for one in checker.findings()]
    broken += [f"read {row} and gone" for row in follower.seen if there.get(row[:2]) != row[2]]
    return broken
