"""A node whose cluster has not formed yet: its ports answer, and say what is missing."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

import goqueue
from goqueue.base.errors import ConnectionLostError
from tests.acceptance.clustered import SOURCE, Clustered, ClusteredNode
from tests.acceptance.served import SECONDS_MAX
from tests.cli.running import run_process


def ask(node: ClusteredNode, path: str) -> tuple[int, Any, str | None]:
    """Return status, body and Retry-After of a request; status 0 if nothing answers."""
    host, _, port = node.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS_MAX)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read()), reply.getheader("retry-after")
    except OSError:
        return 0, None, None
    finally:
        connection.close()


@pytest.mark.slow
def test_a_node_without_a_cluster_says_so(tmp_path: Path) -> None:
    """C1: 503 with Retry-After, words on every road, and service as soon as there is a cluster."""
    with Clustered(tmp_path) as cluster:
        first = cluster.nodes["n1"]
        cluster.start("n1")
        cluster.until(lambda: ask(first, "/livez")[0] == 200)
        ready, topics = ask(first, "/readyz"), ask(first, "/topics")
        with pytest.raises(ConnectionLostError, match="waits for its cluster"):
            goqueue.connect(first.native, timeout=1).list_topics()
        said = run_process(
            "-s", first.native, "--timeout", "1", "topic", "list", PYTHONPATH=str(SOURCE)
        )
        for name in ("n2", "n3"):
            cluster.start(name)
        cluster.until_alive(list(cluster.nodes))
        cluster.until(lambda: ask(first, "/readyz")[0] == 200)
        with goqueue.connect(first.native) as client:
            client.create_topic("orders", partitions=3)

        assert ready[0] == topics[0] == 503
        assert "n2, n3" in ready[1]["message"]
        assert (topics[1]["code"], topics[2]) == ("leader_not_available", "1")
        assert "waits for its cluster" in said.err
        assert ask(first, "/topics")[0] == 200
