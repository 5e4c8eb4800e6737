"""A real node whose disk fails ends, and the others go on without it."""

import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

import goqueue
from tests.acceptance.clustered import Clustered
from tests.acceptance.test_cluster_kills import QUICK

SECONDS_MAX = 60


@pytest.mark.slow
def test_a_node_whose_disk_fails_makes_way(tmp_path: Path) -> None:
    """It hears of no decision any more, so it ends at once; started again, it is back."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with Clustered(tmp_path, **QUICK) as cluster:
        names = list(cluster.nodes)
        for name in names:
            cluster.start(name)
        cluster.until_alive(names)
        victim = cluster.controller("n1")
        others = [name for name in names if name != victim]
        with goqueue.connect(cluster.addresses, timeout=SECONDS_MAX) as client:
            client.create_topic("orders", partitions=3)
            cluster.until_in_sync("orders", 3)
            with client.producer("orders") as producer:
                fault = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"]
                pid = str(cluster.nodes[victim].pid)
                tracer = subprocess.Popen(
                    ["strace", "-f", "-qq", "-o", "/dev/null", "-p", pid, *fault]
                )
                try:
                    began, pause = time.monotonic(), threading.Event()
                    while cluster.nodes[victim].exit_code is None:
                        for number in range(3):
                            producer.publish(b"x", partition=number)
                        assert time.monotonic() - began < SECONDS_MAX, "it goes on"
                        pause.wait(0.01)
                finally:
                    tracer.terminate()
                    tracer.wait()
                cluster.until_alive(others)
                places = [producer.publish(b"y", partition=number) for number in range(3)]
                cluster.start(victim)
                cluster.until_in_sync("orders", 3)

        assert cluster.nodes[victim].exit_code is None
        assert [place.replicas for place in places] == [2, 2, 2]
        assert any("cannot take part" in one["event"] for one in cluster.nodes[victim].lines)
