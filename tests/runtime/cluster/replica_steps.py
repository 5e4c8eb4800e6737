"""Steps of scenarios with replicated partitions."""

from typing import Any

from goqueue.base.errors import GoQueueError
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp
from goqueue.runtime.log.acks import Acks
from goqueue.runtime.log.published import Published
from tests.runtime.grants import PUBLISHING
from tests.runtime.rig import read_all
from tests.sim.cluster_clients import frames_of
from tests.sim.cluster_nodes import SimCluster, SimNode


async def publish_once(
    cluster: SimCluster,
    *values: bytes,
    topic: str = "orders",
    stamp: ProducerStamp = NO_STAMP,
    acks: Acks = Acks.ALL,
) -> Published:
    """Publish through the leader, once."""
    node = cluster.leader(topic)
    where = node.broker.topic(topic)

    async def send() -> Published:
        appended = await where.append_all(PUBLISHING, [(0, frames_of(*values, stamp=stamp))])
        (outcome,) = await where.acknowledge(appended, acks=acks)
        if isinstance(outcome, GoQueueError):
            raise outcome
        return outcome

    return await node.run(send())


async def values_at(node: SimNode, topic: str = "orders") -> list[bytes]:
    messages, _ = await node.run(read_all(node.broker.topic(topic), 0))
    return [message.value or b"" for message in messages]


async def whole(cluster: SimCluster, topic: str = "orders", **settings: Any) -> SimNode:
    """Make a topic with all replicas in sync; return its leader."""
    await cluster.create(topic, **settings)
    await cluster.until(cluster.is_whole)
    return cluster.leader(topic)


def followers_of(cluster: SimCluster, leader: SimNode) -> list[SimNode]:
    return [node for node in cluster.nodes.values() if node is not leader]


async def led_by_another(cluster: SimCluster, old: SimNode, topic: str = "orders") -> SimNode:
    await cluster.until(
        lambda: cluster.record(topic).leader_id not in (None, old.name) and cluster.is_led(topic)
    )
    return cluster.leader(topic)


def end_at(cluster: SimCluster, node: SimNode, offset: int, topic: str = "orders") -> bool:
    return cluster.partition(node, topic).visible_offset == offset
