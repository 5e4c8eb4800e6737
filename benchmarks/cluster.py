"""Three nodes on this machine: start, takeover, graceful stops, and what replication costs.

    python -m benchmarks.cluster                  everything, about two minutes
    python -m benchmarks.cluster --kills 20       more takeovers

Everything runs on loopback and one disk, so read ratios. Nothing is compared with peers here.
"""

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import goqueue
from benchmarks.child import LOOPBACK, Child, free_port

NODES = 3
VALUE = b"x" * 100
KEYS = 997
SINGLES = 200
START_SECONDS_MAX = 60.0
TAKEOVER_SECONDS_MAX = 60.0


class Cluster:
    """Three nodes, their ports and their processes."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._ports = [(free_port(), free_port(), free_port()) for _ in range(NODES)]
        self._peers = ",".join(
            f"n{number}@{LOOPBACK}:{ports[0]}" for number, ports in enumerate(self._ports)
        )
        self.children: dict[int, Child] = {}

    @property
    def addresses(self) -> str:
        """Where clients connect."""
        return ",".join(f"{LOOPBACK}:{ports[1]}" for ports in self._ports)

    def start(self, number: int) -> None:
        """Start one node."""
        internal, native, http = self._ports[number]
        argv = [sys.executable, "-m", "goqueue", "serve", "--data", str(self._home / f"n{number}")]
        argv += ["--node-id", f"n{number}", "--log-format", "json"]
        argv += ["--native", f"{LOOPBACK}:{native}", "--http", f"{LOOPBACK}:{http}"]
        argv += ["--set", "cluster.enabled=true", "--set", f"cluster.peers={self._peers}"]
        argv += ["--set", f"listeners.internal={LOOPBACK}:{internal}"]
        self.children[number] = Child(argv, directory=self._home / f"log{number}")

    def end(self, number: int, how: signal.Signals) -> None:
        """End one node."""
        child = self.children.pop(number)
        (child.kill if how is signal.SIGKILL else child.stop)()

    def stop(self) -> None:
        """End all of them."""
        for number in list(self.children):
            self.end(number, signal.SIGKILL)


class Pulse(threading.Thread):
    """Publishes to every partition in turn, and notes when each was last acknowledged."""

    def __init__(self, client: goqueue.Client, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._producer = client.producer(topic, linger_ms=1, delivery_timeout_ms=120_000)
        self._partitions = partitions
        self._over = threading.Event()
        self.acked_at = [0.0] * partitions
        self.longest = [0.0] * partitions
        self.errors: list[BaseException] = []

    def run(self) -> None:
        """Send a message to each partition every 20 ms."""
        while not self._over.wait(0.02):
            for number in range(self._partitions):
                self._producer.send(VALUE, partition=number).add_done_callback(self._note)

    def _note(self, future: "goqueue.SendFuture") -> None:
        error = future.exception()
        if error is not None:
            self.errors.append(error)
            return
        number, now = future.result().partition, time.monotonic()
        if self.acked_at[number]:
            self.longest[number] = max(self.longest[number], now - self.acked_at[number])
        self.acked_at[number] = now

    def until_all(self, since: float) -> float:
        """Return after how long every partition has acknowledged a message again."""
        while min(self.acked_at) <= since:
            assert time.monotonic() - since < TAKEOVER_SECONDS_MAX, "a partition has no leader"
            time.sleep(0.005)
        return time.monotonic() - since

    def finish(self) -> None:
        """Stop."""
        self._over.set()
        self.join()
        self._producer.close()


def wait(ready: Callable[[], bool], seconds_max: float = START_SECONDS_MAX) -> float:
    """Return after how long something holds."""
    began = time.monotonic()
    while not ready():
        assert time.monotonic() - began < seconds_max, "not in time"
        time.sleep(0.01)
    return time.monotonic() - began


def serves(addresses: str) -> bool:
    """Return True if a topic can be made and published to."""
    try:
        with goqueue.connect(addresses, timeout=5) as client:
            name = f"probe-{time.monotonic_ns()}"
            client.create_topic(name, partitions=NODES)
            with client.producer(name) as producer:
                for number in range(NODES):
                    producer.send(VALUE, partition=number).result(timeout=5)
    except goqueue.GoQueueError:
        return False
    return True


def throughput(client: goqueue.Client, topic: str, messages: int) -> float:
    """Return messages a second, published and acknowledged."""
    began = time.monotonic()
    with client.producer(topic) as producer:
        for number in range(messages):
            producer.send(VALUE, key=b"%d" % (number % KEYS))
    return messages / (time.monotonic() - began)


def single_ms(client: goqueue.Client, topic: str) -> float:
    """Return the median time of one awaited publish."""
    times: list[float] = []
    with client.producer(topic) as producer:
        for _ in range(SINGLES):
            began = time.perf_counter()
            producer.publish(VALUE, partition=0)
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1_000


def consumed(client: goqueue.Client, topic: str, messages: int) -> float:
    """Return messages a second, leased and acknowledged."""
    count, began = 0, time.monotonic()
    with client.consumer(f"{topic}-group", [topic]) as consumer:
        while count < messages:
            batch = consumer.poll(max_messages=1_000, timeout=5.0)
            for message in batch:
                message.ack()
            count += len(batch)
        consumer.flush()
    return messages / (time.monotonic() - began)


def replication(client: goqueue.Client, messages: int) -> dict[str, object]:
    """Measure the same work with one replica and with three, in turn."""
    rates: dict[int, list[tuple[float, float, float]]] = {1: [], 3: []}
    for turn in range(2):
        for factor, rows in rates.items():
            topic = f"rf{factor}-{turn}"
            client.create_topic(topic, partitions=NODES, replication_factor=factor)
            rate = throughput(client, topic, messages)
            latency = single_ms(client, topic)
            rows.append((rate, latency, consumed(client, topic, messages)))
    best = {
        factor: [max(r[0] for r in rows), min(r[1] for r in rows), max(r[2] for r in rows)]
        for factor, rows in rates.items()
    }
    return {
        "rf1 publish/s, p50 ms, consume/s": [round(one, 2) for one in best[1]],
        "rf3 publish/s, p50 ms, consume/s": [round(one, 2) for one in best[3]],
        "publish ratio": round(best[3][0] / best[1][0], 2),
        "single p50 ratio": round(best[3][1] / best[1][1], 2),
        "consume ratio": round(best[3][2] / best[1][2], 2),
    }


def takeovers(cluster: Cluster, client: goqueue.Client, kills: int, partitions: int) -> list[float]:
    """Kill node after node; return how long each partition took to be served again."""
    client.create_topic("kills", partitions=partitions)
    pulse = Pulse(client, "kills", partitions)
    pulse.start()
    found: list[float] = []
    for turn in range(kills):
        time.sleep(3.0)
        since = time.monotonic()
        cluster.end(turn % NODES, signal.SIGKILL)
        found.append(pulse.until_all(since))
        cluster.start(turn % NODES)
        time.sleep(8.0)
    pulse.finish()
    assert not pulse.errors, pulse.errors[:3]
    return found


def rolling(cluster: Cluster, client: goqueue.Client, partitions: int) -> tuple[float, int]:
    """Stop and start node after node; return the longest pause of a partition, and the errors."""
    client.create_topic("rolling", partitions=partitions)
    pulse = Pulse(client, "rolling", partitions)
    pulse.start()
    time.sleep(2.0)
    pulse.longest = [0.0] * partitions
    for number in range(NODES):
        cluster.end(number, signal.SIGTERM)
        cluster.start(number)
        time.sleep(8.0)
    pulse.finish()
    return max(pulse.longest), len(pulse.errors)


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=300)
    parser.add_argument("--messages", type=int, default=200_000)
    options = parser.parse_args(arguments)
    home = Path(tempfile.mkdtemp(prefix="goqueue-cluster-"))
    cluster = Cluster(home)
    figures: dict[str, object] = {}
    try:
        began = time.monotonic()
        for number in range(NODES):
            cluster.start(number)
        wait(lambda: serves(cluster.addresses))
        figures["three empty nodes to the first publishes, s"] = round(time.monotonic() - began, 2)
        with goqueue.connect(cluster.addresses, timeout=60) as client:
            figures.update(replication(client, options.messages))
            took = takeovers(cluster, client, options.kills, options.partitions)
            figures[f"kill -9 to an ack of all {options.partitions} partitions, s"] = [
                round(one, 2) for one in took
            ]
            pause, errors = rolling(cluster, client, 30)
            figures["rolling restart: longest pause of a partition, s"] = round(pause, 2)
            figures["rolling restart: errors"] = errors
    finally:
        print(json.dumps(figures, indent=2))
        cluster.stop()
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
