"""Three real nodes: they meet, lose their controller, and are one cluster again."""

import signal
import time
from pathlib import Path

import pytest

from tests.acceptance.clustered import Clustered

ELECTION = {"topic": "__schemas", "partition": 0}
SECONDS_TO_DECIDE = 10
"""Far more than an election takes: this machine may be busy. The figure itself is printed."""


@pytest.mark.slow
def test_a_cluster_outlives_its_controller(tmp_path: Path) -> None:
    """kill -9 of the controller: the next change is accepted by another, nothing waits for it."""
    with Clustered(tmp_path) as cluster:
        names = list(cluster.nodes)
        for name in reversed(names):
            cluster.start(name)
        founded = cluster.until_alive(names)
        node = cluster.nodes["n1"]
        cluster.until(lambda: node.ask("GET", "/cluster/partition/__schemas/0/info")[0] == 200)
        controller = cluster.controller("n1")
        survivors = [name for name in names if name != controller]
        before = cluster.nodes[survivors[0]].ask("GET", "/cluster/state")[1]

        cluster.nodes[controller].end(signal.SIGKILL)
        began = time.monotonic()
        asked = cluster.nodes[survivors[0]]
        cluster.until(lambda: asked.ask("POST", "/cluster/leader-election", ELECTION)[0] == 200)
        decided = time.monotonic() - began
        fenced = cluster.until_alive(survivors)
        cluster.start(controller)
        back = cluster.until_alive(names)
        after = asked.ask("GET", "/cluster/state")[1]
        codes = [cluster.nodes[name].end(signal.SIGTERM) for name in names]
        print(  # noqa: T201 - the figures of this run
            f"founded {founded:.1f} s, next change {decided:.1f} s,"
            f" fenced {fenced:.1f} s later, back {back:.1f} s"
        )

        assert decided < SECONDS_TO_DECIDE
        assert after["cluster_state"]["cluster_id"] == before["cluster_state"]["cluster_id"]
        assert after["controller_epoch"] > before["controller_epoch"]
        assert codes == [0, 0, 0]
