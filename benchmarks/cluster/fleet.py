"""Brokers of ours for these measurements: three nodes, or one by itself, and what they cost."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import goqueue
from benchmarks.child import LOOPBACK, Child, free_port

NODES = 3
WAIT_SECONDS_MAX = 120.0
VALUE = b"x" * 100

_SYNCS = re.compile(r"^goqueue_storage_fsync_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)
_PROCESS = re.compile(r"pid=(\d+)")
_SENT = re.compile(r"bytes_sent:(\d+)")


class Ports(NamedTuple):
    """Where one node listens."""

    internal: int
    native: int
    http: int


class Cost(NamedTuple):
    """What brokers have used up so far: of all of them together."""

    processor_seconds: float
    syncs: float

    def since(self, earlier: "Cost") -> "Cost":
        """Return what came on top of an earlier cost."""
        return Cost(self.processor_seconds - earlier.processor_seconds, self.syncs - earlier.syncs)


@dataclass(slots=True)
class Fleet:
    """Processes of ours that clients see as one broker."""

    home: Path
    ports: list[Ports]
    is_cluster: bool
    children: dict[int, Child]

    @classmethod
    def of(cls, home: Path, *, nodes: int) -> Self:
        """Prepare nodes of a cluster; one node is a broker by itself."""
        ports = [Ports(free_port(), free_port(), free_port()) for _ in range(nodes)]
        return cls(home, ports, nodes > 1, {})

    @property
    def addresses(self) -> str:
        """Where clients connect."""
        return ",".join(f"{LOOPBACK}:{one.native}" for one in self.ports)

    def data_of(self, number: int) -> Path:
        """Return the data directory of a node."""
        return self.home / f"n{number}"

    def start(self, number: int) -> None:
        """Start one node."""
        ports = self.ports[number]
        argv = [sys.executable, "-m", "goqueue", "serve", "--data", str(self.data_of(number))]
        argv += ["--node-id", f"n{number}", "--log-format", "json"]
        argv += ["--native", f"{LOOPBACK}:{ports.native}", "--http", f"{LOOPBACK}:{ports.http}"]
        if self.is_cluster:
            peers = ",".join(
                f"n{other}@{LOOPBACK}:{one.internal}" for other, one in enumerate(self.ports)
            )
            argv += ["--set", "cluster.enabled=true", "--set", f"cluster.peers={peers}"]
            argv += ["--set", f"listeners.internal={LOOPBACK}:{ports.internal}"]
        self.children[number] = Child(argv, directory=self.home / f"log{number}")

    def start_all(self) -> float:
        """Start every node; return the seconds until a topic can be made and published to."""
        began = time.monotonic()
        for number in range(len(self.ports)):
            self.start(number)
        wait(lambda: serves(self.addresses))
        return time.monotonic() - began

    def end(self, number: int, how: signal.Signals) -> None:
        """End one node and wait until it has ended."""
        child = self.children.pop(number)
        (child.kill if how is signal.SIGKILL else child.stop)()

    def stop(self) -> None:
        """End all of them."""
        for number in list(self.children):
            self.end(number, signal.SIGKILL)

    # What they say.

    def state(self) -> Any:  # noqa: ANN401 - JSON
        """Return the cluster's state as some node knows it."""
        for number in self.children:
            address = f"http://{LOOPBACK}:{self.ports[number].internal}/cluster/state"
            try:
                with urllib.request.urlopen(address, timeout=10) as reply:
                    return json.load(reply)
            except OSError:
                continue
        raise ConnectionError("no node answers")

    def partitions(self, topic: str) -> dict[int, dict[str, Any]]:
        """Return leader, replicas and replicas in sync of the partitions of a topic."""
        found = self.state()["cluster_meta"]["assignments"].values()
        return {one["partition"]: one for one in found if one["topic"] == topic}

    def until_in_sync(self, topic: str) -> None:
        """Wait until every replica of a topic is in sync."""

        def are_in_sync() -> bool:
            found = self.partitions(topic).values()
            return bool(found) and all(len(one["isr"]) == len(one["replicas"]) for one in found)

        wait(are_in_sync, pause=0.05)

    # What they cost.

    def processor_seconds(self) -> list[float]:
        """Return the processor time of each node."""
        return [self.children[number].processor_seconds() for number in sorted(self.children)]

    def cost(self) -> Cost:
        """Return what all nodes have used up so far."""
        syncs = 0.0
        for number in self.children:
            address = f"http://{LOOPBACK}:{self.ports[number].http}/metrics"
            with urllib.request.urlopen(address, timeout=10) as reply:
                syncs += sum(map(float, _SYNCS.findall(reply.read().decode())))
        return Cost(sum(self.processor_seconds()), syncs)

    def bytes_sent(self) -> list[int]:
        """Return the bytes that each node has sent on the connections that are open now."""
        lines = subprocess.run(
            ["ss", "-tinpH"], check=True, capture_output=True, text=True, timeout=10
        ).stdout.splitlines()
        sent = dict.fromkeys((child.pid for child in self.children.values()), 0)
        for line, details in pairwise(lines):
            process, count = _PROCESS.search(line), _SENT.search(details)
            if process and count and int(process[1]) in sent:
                sent[int(process[1])] += int(count[1])
        return [sent[self.children[number].pid] for number in sorted(self.children)]


def wait(is_true: Callable[[], bool], *, pause: float = 0.01) -> float:
    """Return after how long something holds."""
    began = time.monotonic()
    while not is_true():
        assert time.monotonic() - began < WAIT_SECONDS_MAX, "not in time"
        time.sleep(pause)
    return time.monotonic() - began


def serves(addresses: str) -> bool:
    """Return True if a topic can be made and published to."""
    try:
        with goqueue.connect(addresses, timeout=5) as client:
            name = f"probe-{time.monotonic_ns()}"
            client.create_topic(name, partitions=NODES)
            publish_everywhere(client, name, NODES)
            client.delete_topic(name)
    except goqueue.GoQueueError:
        return False
    return True


def publish_everywhere(client: goqueue.Client, topic: str, partitions: int) -> None:
    """Return when every partition has acknowledged a message."""
    with client.producer(topic, linger_ms=1) as producer:
        sent = [producer.send(VALUE, partition=number) for number in range(partitions)]
        for future in sent:
            future.result(timeout=60)


def middle(values: Sequence[float]) -> float:
    """Return the value that as many are below as above."""
    return sorted(values)[len(values) // 2]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
