"""Partitions of real brokers are replicated: acknowledged is what every replica in sync has."""

from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.runtime.log.leadership import Role
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import read_all
from tests.sim.cluster_nodes import SimCluster, SimNode, run_cluster


def frames_of(*values: bytes, stamp: ProducerStamp = NO_STAMP) -> memoryview:
    return memoryview(frame_drafts([Draft(value=value) for value in values], stamp))


async def publish(cluster: SimCluster, *values: bytes, topic: str = "orders") -> int:
    node = cluster.leader(topic)
    published = await node.run(node.broker.topic(topic).publish(PUBLISHING, 0, frames_of(*values)))
    return published.base_offset


async def values_at(node: SimNode, topic: str = "orders") -> list[bytes]:
    messages, _ = await node.run(read_all(node.broker.topic(topic), 0))
    return [message.value or b"" for message in messages]


def test_what_is_acknowledged_is_on_every_disk_and_survives_its_leader() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await cluster.create("orders")
        await cluster.until(lambda: len(cluster.record("orders").isr_ids) == 3)
        assert await publish(cluster, b"a", b"b") == 0
        for node in cluster.nodes.values():
            assert cluster.partition(node, "orders").log.durable_offset == 2

        first = cluster.leader("orders")
        first.cut_power()
        await cluster.until(
            lambda: cluster.record("orders").leader_id != first.name and cluster.is_led("orders")
        )
        second = cluster.leader("orders")
        assert second is not first
        # It keeps the high watermark it knows until its replicas in sync have fetched.
        await cluster.until(lambda: cluster.partition(second, "orders").visible_offset == 2)
        assert await values_at(second) == [b"a", b"b"]
        assert await publish(cluster, b"c") == 2

        first.begin()
        await cluster.until(cluster.is_whole)
        assert cluster.partition(first, "orders").leadership.role is Role.FOLLOWER
        await cluster.until(lambda: cluster.partition(first, "orders").log.durable_offset == 3)

    run_cluster(scenario)
