"""Three real nodes of a cluster, each a process of its own, to be killed and started again."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

from tests.acceptance.served import SECONDS_MAX, address_of, held_port

SOURCE = Path(__file__).parents[2] / "src"


class ClusteredNode:
    """One node on ports that stay its own, over as many processes as it takes."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.data_dir = home / name
        self._log = home / f"{name}.log"
        self._held = [held_port() for _ in range(3)]
        self.cluster, self.native, self.http = map(address_of, self._held)
        self._process: subprocess.Popen[bytes] | None = None
        self.context: ssl.SSLContext | None = None
        """How TLS is spoken at the port between nodes; None where they speak in the clear."""

    def start(self, peers: str, **others: str) -> None:
        """Start the process; it serves some time later."""
        settings = {
            "GOQUEUE_CLUSTER_ENABLED": "true",
            "GOQUEUE_CLUSTER_PEERS": peers,
            "GOQUEUE_BROKER_NODEID": self.name,
            "GOQUEUE_BROKER_DATADIR": str(self.data_dir),
            "GOQUEUE_LISTENERS_INTERNAL": self.cluster,
            "GOQUEUE_LISTENERS_NATIVE": self.native,
            "GOQUEUE_LISTENERS_HTTP": self.http,
            "GOQUEUE_LOG_FORMAT": "json",
            "PYTHONPATH": str(SOURCE),
            **others,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "goqueue", "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **settings},
            )

    @property
    def pid(self) -> int:
        assert self._process is not None, "started"
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        assert self._process is not None, "started"
        return self._process.poll()

    def end(self, number: int) -> int:
        """Send a signal and wait for the end; return the exit code."""
        assert self._process is not None, "started"
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(SECONDS_MAX)

    def close(self) -> None:
        """End the process if there is one, and give the ports back."""
        if self._process is not None:
            self.end(signal.SIGKILL)
        for held in self._held:
            held.close()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What the node has logged."""
        text = self._log.read_text(errors="replace")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask over HTTP at the port between nodes; status 0 if nothing answers."""
        host, _, port = self.cluster.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS_MAX)
        if self.context is not None:
            connection = http.client.HTTPSConnection(
                host, int(port), timeout=SECONDS_MAX, context=self.context
            )
        try:
            content = None if body is None else json.dumps(body)
            headers = {"content-type": "application/json"} if content else {}
            connection.request(method, path, body=content, headers=headers)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()


class Clustered:
    """Three nodes that are one cluster."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.nodes = {name: ClusteredNode(name, home) for name in ("n1", "n2", "n3")}
        self._settings = settings
        self.peers = ",".join(f"{one.name}@{one.cluster}" for one in self.nodes.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.close()

    def start(self, name: str) -> None:
        """Start one node."""
        self.nodes[name].start(self.peers, **self._settings)

    @property
    def addresses(self) -> str:
        """Where clients connect."""
        return ",".join(node.native for node in self.nodes.values())

    def partition(self, topic: str, number: int) -> dict[str, Any]:
        """Return leader, replicas and replicas in sync of a partition, as some node knows them."""
        for node in self.nodes.values():
            status, found = node.ask("GET", f"/cluster/partition/{topic}/{number}/info")
            if status == http.HTTPStatus.OK:
                return dict(found)
        return {}

    def until_in_sync(self, topic: str, partitions: int) -> None:
        """Wait until every replica of a topic is in sync."""
        wanted = set(self.nodes)
        self.until(
            lambda: all(
                set(self.partition(topic, one).get("isr", ())) == wanted
                for one in range(partitions)
            )
        )

    def until_alive(self, names: list[str]) -> float:
        """Wait until these nodes, and no others, are alive on each of them; return the seconds."""
        began = time.monotonic()
        wanted = set(names)
        self.until(lambda: all(self.alive_on(name) == wanted for name in names))
        return time.monotonic() - began

    def alive_on(self, name: str) -> set[str]:
        """Return the nodes that are alive as one of them sees it."""
        status, found = self.nodes[name].ask("GET", "/cluster/state")
        if status != http.HTTPStatus.OK or not found["controller_id"]:
            return set()
        nodes = found["cluster_state"]["nodes"].values()
        return {one["id"] for one in nodes if one["status"] == "alive"}

    def controller(self, name: str) -> str:
        """Return the controller as one node knows it."""
        return str(self.nodes[name].ask("GET", "/cluster/health")[1]["controller_id"])

    def until(self, is_true: Any) -> None:
        """Wait for something to come true."""
        deadline = time.monotonic() + SECONDS_MAX
        pause = threading.Event()
        while not is_true():
            assert time.monotonic() < deadline, [
                one.lines[-3:] for one in self.nodes.values() if one.lines
            ]
            pause.wait(0.02)
