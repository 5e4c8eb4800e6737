"""Replicas move and topics grow in a real cluster that is published to, and loses nodes."""

import os
import signal
import threading
import time
from itertools import count
from pathlib import Path
from typing import Self

import pytest

import goqueue
from tests.acceptance.clustered import Clustered
from tests.acceptance.test_cluster_kills import QUICK

PATH = "/cluster/reassignment"
MiB = 1024 * 1024
THROTTLE = 4 * MiB
VALUE = os.urandom(64 * 1024)
MESSAGES = 160


class Load:
    """Publishes one message after the other until it is told to stop."""

    def __init__(self, cluster: Clustered) -> None:
        self._addresses = cluster.addresses
        self.acked: dict[tuple[int, int], bytes] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with (
                goqueue.connect(self._addresses, timeout=60) as client,
                client.producer("orders", delivery_timeout_ms=60_000) as producer,
            ):
                for number in count():
                    if self._is_over.is_set():
                        return
                    value = b"%d" % number
                    place = producer.send(value, key=b"k%d" % (number % 50)).result()
                    self.acked[int(place.partition), int(place.offset)] = value
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.failure = error


def _replicas(cluster: Clustered, number: int) -> tuple[list[str], set[str]]:
    found = cluster.partition("orders", number)
    return list(found.get("replicas", ())), set(found.get("isr", ()))


def _state(cluster: Clustered, name: str) -> str:
    for node in cluster.nodes.values():
        status, found = node.ask("GET", f"{PATH}/{name}")
        if status == 200:
            return str(found["state"])
    return ""


def _start(cluster: Clustered, moves: list[dict[str, object]], **fields: object) -> str:
    node = next(iter(cluster.nodes.values()))
    status, found = node.ask("POST", PATH, {"partitions": moves, **fields})
    assert status == 202, found
    return str(found["reassignment_id"])


@pytest.mark.slow
def test_replicas_move_under_load_and_a_killed_controller(tmp_path: Path) -> None:
    """P1, P2: throttled, paused within a second, taken back, finished by the next controller."""
    with Clustered(tmp_path, **QUICK) as cluster:
        names = list(cluster.nodes)
        for name in names:
            cluster.start(name)
        cluster.until_alive(names)
        node = cluster.nodes["n1"]
        with goqueue.connect(cluster.addresses, timeout=60) as client:
            client.create_topic("orders", partitions=2, replication_factor=1)
            with client.producer("orders") as producer:
                for _ in range(MESSAGES):
                    producer.send(VALUE, partition=0)
            owner = _replicas(cluster, 0)[0]
            first, second = (name for name in names if name not in owner)
            with Load(cluster) as load:
                # Cancelled: the old replica has it as before.
                moves = [{"topic": "orders", "partition": 0, "new_replicas": [first, second]}]
                name = _start(cluster, moves, throttle_bytes_per_sec=THROTTLE)
                cluster.until(lambda: len(_replicas(cluster, 0)[0]) == 3)
                assert node.ask("POST", f"{PATH}/{name}/pause", {})[0] == 200
                before = node.ask("GET", f"{PATH}/{name}")[1]["progress"]["orders-0"]
                threading.Event().wait(1.0)
                after = node.ask("GET", f"{PATH}/{name}")[1]["progress"]["orders-0"]
                assert after["bytes_transferred"] - before["bytes_transferred"] < THROTTLE // 4
                assert node.ask("POST", f"{PATH}/{name}/cancel", {})[0] == 200
                assert _state(cluster, name) == "canceled"
                assert _replicas(cluster, 0)[0] == owner

                # Throttled, and finished by another controller.
                began = time.monotonic()
                name = _start(cluster, moves, throttle_bytes_per_sec=THROTTLE)
                controller = cluster.controller("n1")
                if controller not in owner:
                    cluster.nodes[controller].end(signal.SIGKILL)
                    cluster.start(controller)
                cluster.until(lambda: _state(cluster, name) == "completed")
                # Each of the two gets half of what the old replica may send.
                assert time.monotonic() - began > 2 * MESSAGES * len(VALUE) / THROTTLE * 0.8
                assert _replicas(cluster, 0) == ([first, second], {first, second})
                cluster.until_alive(names)
            assert load.failure is None
            read = {
                (int(one.partition), int(one.offset)): one.value
                for one in client.read("orders", follow=False)
            }
            assert load.acked
            assert {place: read.get(place) for place in load.acked} == load.acked


@pytest.mark.slow
def test_a_topic_grows_under_load(tmp_path: Path) -> None:
    """P1, P3: no publish fails, the new partitions have leaders and replicas, and again."""
    with Clustered(tmp_path, **QUICK) as cluster:
        names = list(cluster.nodes)
        for name in names:
            cluster.start(name)
        cluster.until_alive(names)
        with goqueue.connect(cluster.addresses, timeout=60) as client:
            client.create_topic("orders", partitions=2)
            cluster.until_in_sync("orders", 2)
            with Load(cluster) as load:
                cluster.until(lambda: load.acked)
                for total in (5, 7):
                    began = time.monotonic()
                    added = client.add_partitions("orders", total)
                    assert time.monotonic() - began < 10
                    assert added.after == total
                    with client.producer("orders") as producer:
                        places = [producer.send(b"x", partition=n).result() for n in range(total)]
                    assert {one.partition for one in places} == set(range(total))
                    assert {one.replicas for one in places} == {3}
            assert load.failure is None
            read = {
                (int(one.partition), int(one.offset)): one.value
                for one in client.read("orders", follow=False)
            }
            assert {place: read.get(place) for place in load.acked} == load.acked
