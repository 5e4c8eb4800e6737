"""The topics of the image on each node: what is deleted while it opens leaves nothing behind."""

import asyncio

import pytest

from goqueue.core.cluster.commands import CreateTopic, DeleteTopic
from tests.sim.cluster_nodes import SimCluster, run_cluster


def forget(cluster: SimCluster, name: str) -> None:
    cluster.controller.decide(DeleteTopic(name=name))


def make(cluster: SimCluster, name: str) -> None:
    cluster.controller.decide(CreateTopic(name=name, partitions=2, settings={}))


@pytest.mark.parametrize("pause_ms", [0, 1, 2, 5, 10, 20, 40])
def test_a_topic_deleted_while_it_is_opened_stops_nothing(pause_ms: int) -> None:
    """The nodes go on with other topics, and keep no folder of it."""

    async def scenario(cluster: SimCluster) -> None:
        for number in range(6):
            make(cluster, "brief")
            await asyncio.sleep((pause_ms + number / 3) / 1_000)
            forget(cluster, "brief")
            await asyncio.sleep(number / 1_000)
        await cluster.create("orders")
        await cluster.until(
            lambda: all(
                list(node.broker.topics) == ["orders"] and not node.disk.exists("logs/brief")
                for node in cluster.nodes.values()
            )
        )

        make(cluster, "brief")
        await cluster.until(lambda: cluster.is_led("brief"))

    simulation = run_cluster(scenario)

    assert simulation.failures == []
