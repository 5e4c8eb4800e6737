"""Real nodes join a cluster, are removed from it, and say so."""

from pathlib import Path

import pytest

import goqueue
from tests.acceptance.clustered import Clustered, ClusteredNode
from tests.acceptance.test_cluster_kills import QUICK
from tests.cli.running import run_process

JOINED = ("n4", "n5")


def members(cluster: Clustered, name: str) -> dict[str, str]:
    """Return the nodes and their places in the quorum, as one of them sees it."""
    status, found = cluster.nodes[name].ask("GET", "/cluster/state")
    if status != 200:
        return {}
    return {one["id"]: one.get("quorum", "") for one in found["cluster_state"]["nodes"].values()}


@pytest.mark.slow
def test_real_nodes_join_and_one_is_removed(tmp_path: Path) -> None:
    """Two join and vote, hold new partitions; one is removed, ends, and is refused afterwards."""
    with Clustered(tmp_path, **QUICK) as cluster:
        for name in ("n1", "n2", "n3"):
            cluster.start(name)
        cluster.until_alive(["n1", "n2", "n3"])
        for name in JOINED:
            cluster.nodes[name] = ClusteredNode(name, tmp_path)
            cluster.start(name)
        everyone = list(cluster.nodes)
        cluster.until_alive(everyone)
        cluster.until(lambda: members(cluster, "n1") == dict.fromkeys(everyone, "voter"))
        with goqueue.connect(cluster.nodes["n5"].native, timeout=60) as client:
            client.create_topic("orders", partitions=5)
            with client.producer("orders") as producer:
                for number in range(20):
                    producer.send(b"%d" % number)
            assert {one.value for one in client.read("orders")} == {b"%d" % n for n in range(20)}
        status, refused = cluster.nodes["n1"].ask("POST", "/cluster/remove", {"node_id": "n1"})
        assert status == 409, refused
        assert "replicas of" in refused["error"]
        told = run_process(
            "cluster",
            "remove",
            "n1",
            "--move-replicas",
            "--force",
            "--node",
            cluster.nodes["n2"].cluster,
        )
        assert told.code == 0, told
        assert cluster.nodes["n1"].end(0) != 0, "it was not asked to stop"
        left = everyone[1:]
        cluster.until_alive(left)
        assert set(members(cluster, "n2")) == set(left)
        with goqueue.connect(cluster.nodes["n4"].native, timeout=60) as client:
            with client.producer("orders") as producer:
                producer.send(b"more")
            assert len(list(client.read("orders"))) == 21
        cluster.start("n1")
        assert cluster.nodes["n1"].end(0) != 0
        assert any("was removed from the cluster" in str(one) for one in cluster.nodes["n1"].lines)
