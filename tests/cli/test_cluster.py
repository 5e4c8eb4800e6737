"""``goqueue cluster`` says what a node answers, for people and for programs."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from goqueue.wire.http.cluster import cluster_health, state_reply
from goqueue.wire.http.proof import PROOF_HEADER, TIME_HEADER, proof_of
from tests.cli.running import Run
from tests.runtime.cluster.control_fleet import ControlFleet, run_control

KEY = "k" * 32


def answers() -> dict[str, bytes]:
    """Return what a node of a simulated cluster, one of whose nodes died, answers."""
    found: dict[str, bytes] = {}

    async def scenario(fleet: ControlFleet) -> None:
        for name in fleet.places:
            fleet.start(name)
        await fleet.all_alive()
        await fleet.until(lambda: len(fleet.node("a").metadata.image.topics) == 3)
        dead = "c" if fleet.controllers() != ["c"] else "b"
        fleet.kill(dead)
        await fleet.all_alive([name for name in "abc" if name != dead])
        node = fleet.node("a")
        image = node.metadata.image
        await fleet.until(lambda: len(node.sight().health) > 0)
        found["/cluster/state"] = msgspec.json.encode(state_reply(image, node.sight()))
        found["/cluster/health"] = msgspec.json.encode(cluster_health(image, node.sight()))

    run_control(scenario, seed=2)
    return found


class NodeStub(http.server.BaseHTTPRequestHandler):
    """Answers as a node did, to those who have the key."""

    known: dict[str, bytes]

    def do_GET(self) -> None:
        time_ms = int(self.headers.get(TIME_HEADER, "0"))
        proof = proof_of(KEY.encode(), "GET", self.path, time_ms, b"")
        is_right = self.headers.get(PROOF_HEADER) == proof
        body = self.known[self.path] if is_right else b'{"error": "no key", "code": "forbidden"}'
        self.send_response(200 if is_right else 403)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    NodeStub.known = answers()
    server = http.server.HTTPServer(("127.0.0.1", 0), NodeStub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    return str(path)


def test_the_nodes_are_listed(run: Run, node: str, key: str) -> None:
    """Those that are dead, too."""
    shown = run("cluster", "nodes", "--node", node, "--key-file", key)
    listed = json.loads(
        run("cluster", "nodes", "--node", node, "--key-file", key, "-o", "json").out
    )

    assert shown.out.splitlines()[0].split()[:4] == ["ID", "STATUS", "ROLE", "QUORUM"]
    assert {one["id"] for one in listed} == {"a", "b", "c"}
    assert sum(one["leads"] for one in listed) == 59
    assert sorted(one["role"] for one in listed) == ["controller", "follower", "follower"]


def test_the_cluster_is_summed_up(run: Run, node: str, key: str) -> None:
    """With what is wrong counted."""
    found = json.loads(run("cluster", "info", "--node", node, "--key-file", key, "-o", "json").out)

    assert found["nodes"] == 3
    assert found["partitions"] == found["under_replicated"] == 59
    assert found["offline"] == 0


def test_a_sick_cluster_has_an_exit_code(run: Run, node: str, key: str) -> None:
    """So that a script can wait for it to be whole."""
    outcome = run("cluster", "health", "--node", node, "--key-file", key)

    assert outcome.code == 1
    assert "2 of 3 nodes" in outcome.out


def test_a_refusal_and_a_silent_port_are_told(run: Run, node: str) -> None:
    """In a line, without a traceback."""
    refused = run("cluster", "info", "--node", node)
    silent = run("cluster", "info", "--node", "127.0.0.1:1")

    assert refused.code != 0
    assert "no key" in refused.err
    assert "no node answers at 127.0.0.1:1" in silent.err
