"""Three real nodes, each in a network namespace of its own."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any, Final

from goqueue.base.ids import TopicName
from tests.chaos.network import Network, within

SOURCE = Path(__file__).parents[2] / "src"
CLUSTER, NATIVE, HTTP = 7000, 7070, 8080
SECONDS_MAX: Final = 120
TMPFS_MIB: Final = 192
QUICK = {
    "GOQUEUE_CLUSTER_HEARTBEAT_INTERVAL": "500ms",
    "GOQUEUE_CLUSTER_SUSPECT_TIMEOUT": "1s",
    "GOQUEUE_CLUSTER_DEAD_TIMEOUT": "2s",
}


class Node:
    """One node over as many processes as it takes."""

    def __init__(self, name: str, home: Path, address: str) -> None:
        self.name = name
        self.address = address
        self.data_dir = home / name
        self.data_dir.mkdir()
        self._log = home / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._tracer: subprocess.Popen[bytes] | None = None

    @property
    def native(self) -> str:
        """Where clients connect."""
        return f"{self.address}:{NATIVE}"

    @property
    def is_running(self) -> bool:
        """Whether there is a process, be it paused."""
        return self._process is not None and self._process.poll() is None

    def start(self, peers: str, settings: dict[str, str]) -> None:
        """Start the process; it serves some time later."""
        environment = {
            "GOQUEUE_CLUSTER_ENABLED": "true",
            "GOQUEUE_CLUSTER_PEERS": peers,
            "GOQUEUE_BROKER_NODEID": self.name,
            "GOQUEUE_BROKER_DATADIR": str(self.data_dir),
            "GOQUEUE_LISTENERS_INTERNAL": f"{self.address}:{CLUSTER}",
            "GOQUEUE_LISTENERS_NATIVE": self.native,
            "GOQUEUE_LISTENERS_HTTP": f"{self.address}:{HTTP}",
            "GOQUEUE_LOG_FORMAT": "json",
            "PYTHONPATH": str(SOURCE),
            "PYTHONFAULTHANDLER": "1",
            **settings,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*within(self.name), sys.executable, "-m", "goqueue", "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )

    def signal(self, number: int) -> None:
        """Send a signal, if there is a process."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def end(self, number: int) -> int:
        """Send a signal and wait for the end; return the exit code."""
        assert self._process is not None, "started"
        self.signal(number)
        self.signal(signal.SIGCONT)
        code = self._process.wait(SECONDS_MAX)
        self.leave_alone()
        return code

    def inject(self, fault: str) -> None:
        """Have its syscalls go wrong, as ``strace -e inject`` says it."""
        if self._process is None or not self.is_running:
            return
        traced = f"trace={fault.partition(':')[0]}"
        self._tracer = subprocess.Popen(
            [
                *("strace", "-f", "-qq", "-o", "/dev/null", "-p", str(self._process.pid)),
                *("-e", traced, "-e", f"inject={fault}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def leave_alone(self) -> None:
        """Let its syscalls go right again."""
        if self._tracer is not None:
            self._tracer.terminate()
            self._tracer.wait(SECONDS_MAX)
            self._tracer = None

    def mount_small_disk(self) -> None:
        """Give it a disk that can be filled."""
        size = f"size={TMPFS_MIB}m"
        command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.data_dir)]
        subprocess.run(command, check=True, timeout=30)

    def unmount(self) -> None:
        """Take the small disk away again."""
        subprocess.run(["umount", "-l", str(self.data_dir)], check=False, timeout=30)

    def fill_disk(self) -> None:
        """Leave no room on its disk."""
        with (self.data_dir / "filler").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                return

    def make_room(self) -> None:
        """Give the room back."""
        (self.data_dir / "filler").unlink(missing_ok=True)

    def complaints(self) -> Counter[str]:
        """Return what was logged as a fault, and lines that are no log lines, by what they say."""
        found: Counter[str] = Counter()
        for line in self._log.read_text(errors="replace").splitlines():
            if not line.startswith("{"):
                found[line.strip()[:120]] += 1
                continue
            fields = json.loads(line)
            if fields.get("level") in {"error", "critical"}:
                found[f"{fields.get('event')}: {str(fields.get('error', ''))[:120]}"] += 1
        return found

    def ask(self, path: str) -> Any:
        """Ask over HTTP at the port between nodes; None if nothing answers."""
        connection = http.client.HTTPConnection(self.address, CLUSTER, timeout=5)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return json.loads(reply.read()) if reply.status == http.HTTPStatus.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


class Fleet:
    """The nodes of one cluster."""

    def __init__(self, home: Path, settings: dict[str, str], *, names: tuple[str, ...]) -> None:
        self.home = home
        self.network = Network(names)
        self.nodes = {name: Node(name, home, self.network.address[name]) for name in names}
        self._settings = settings
        self._peers = ",".join(f"{one.name}@{one.address}:{CLUSTER}" for one in self.nodes.values())

    @property
    def names(self) -> list[str]:
        return list(self.nodes)

    @property
    def addresses(self) -> str:
        """Where clients connect."""
        return ",".join(node.native for node in self.nodes.values())

    def start(self, name: str) -> None:
        """Start a node unless it runs."""
        if not self.nodes[name].is_running:
            self.nodes[name].start(self._peers, self._settings)

    def controller(self) -> str:
        """Return the controller as most nodes know it; empty if none does."""
        found: Counter[str] = Counter()
        for node in self.nodes.values():
            health = node.ask("/cluster/health")
            if health is not None and health["controller_id"]:
                found[str(health["controller_id"])] += 1
        return found.most_common(1)[0][0] if found else ""

    def leader(self, topic: str, partition: int) -> str:
        """Return the leader of a partition as some node knows it; empty if none does."""
        for node in self.nodes.values():
            found = node.ask(f"/cluster/partition/{topic}/{partition}/info")
            if found is not None:
                return str(found["leader"])
        return ""

    def is_whole(self, topics: Mapping[TopicName, int]) -> bool:
        """Return True if every node says that all nodes are alive and all replicas in sync."""
        return all(self._is_whole_on(node, topics) for node in self.nodes.values())

    def _is_whole_on(self, node: Node, topics: Mapping[TopicName, int]) -> bool:
        state = node.ask("/cluster/state")
        if state is None or not state["controller_id"]:
            return False
        nodes = state["cluster_state"]["nodes"].values()
        if {one["id"] for one in nodes if one["status"] == "alive"} != set(self.nodes):
            return False
        wanted = set(self.nodes)
        for topic, partitions in topics.items():
            for number in range(partitions):
                found = node.ask(f"/cluster/partition/{topic}/{number}/info")
                if found is None or set(found["isr"]) != wanted:
                    return False
        return True


def wait_until(is_true: Callable[[], bool], seconds_max: float) -> float | None:
    """Wait for something to come true; return after how many seconds, None if it did not."""
    began, pause = time.monotonic(), Event()
    while not is_true():
        if time.monotonic() - began > seconds_max:
            return None
        pause.wait(0.02)
    return time.monotonic() - began
