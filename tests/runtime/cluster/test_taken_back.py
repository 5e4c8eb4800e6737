"""A reader that has seen messages which an unclean election lost is told, and not misled."""

from goqueue.base.ids import NO_EPOCH, Offset
from goqueue.runtime.log.fetch import Fetched, FetchPart, fetch
from goqueue.storage.log_notes import Gap
from tests.runtime.cluster.replica_steps import (
    end_at,
    followers_of,
    led_by_another,
    publish_once,
    values_at,
    whole,
)
from tests.runtime.grants import FETCHING
from tests.sim.cluster_nodes import SimCluster, SimNode, run_cluster


async def fetched(node: SimNode, offset: int, epoch: int = NO_EPOCH) -> Fetched:
    part = FetchPart(partition=0, offset=offset, epoch=epoch)
    topic = node.broker.topic("orders")
    (outcome,) = await node.run(fetch(FETCHING, topic, [part], bytes_max=10_000, wait_ms=0))
    assert isinstance(outcome, Fetched), outcome
    return outcome


async def lost_by_election(cluster: SimCluster) -> tuple[int, SimNode]:
    """Publish 0 to 4, lose 2 to 4 by an unclean election, publish others; return the old epoch."""
    leader = await whole(
        cluster, replication_factor=2, min_insync_replicas=1, unclean_leader_election=True
    )
    for number in range(2):
        await publish_once(cluster, b"%d" % number)
    (behind,) = [
        one
        for one in followers_of(cluster, leader)
        if one.name in cluster.record("orders").replicas
    ]
    await cluster.until(lambda: end_at(cluster, behind, 2))
    behind.kill()
    await cluster.until(lambda: cluster.record("orders").isr_ids == (leader.name,))
    for number in range(2, 5):
        await publish_once(cluster, b"%d" % number)
    read = await fetched(leader, 0)
    assert read.next_offset == 5
    leader.kill()
    behind.begin()
    second = await led_by_another(cluster, leader)
    assert second is behind
    assert cluster.controller.unclean == 1
    return read.epoch, second


def test_a_reader_goes_on_where_the_logs_part() -> None:
    async def scenario(cluster: SimCluster) -> None:
        epoch, second = await lost_by_election(cluster)
        # Its offset is beyond the end now; later other messages are there.
        told = await fetched(second, 5, epoch)
        assert told.taken_back == Gap(Offset(2), Offset(5))
        assert told.next_offset == 2
        for number in range(6):
            await publish_once(cluster, b"new %d" % number)
        again = await fetched(second, 5, epoch)
        assert again.taken_back == Gap(Offset(2), Offset(5))
        assert not again.size

        after = await fetched(second, again.next_offset, again.epoch)
        assert after.taken_back is None
        assert after.next_offset == 8
        assert after.epoch > epoch
        # Who has read only what both have is told nothing.
        assert (await fetched(second, 2, epoch)).taken_back is None

    run_cluster(scenario)


def test_the_old_leader_has_nothing_else_when_it_is_back() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await lost_by_election(cluster)
        for number in range(6):
            await publish_once(cluster, b"new %d" % number)
        cluster.heal()
        await cluster.until(cluster.is_whole)
        leader = cluster.leader("orders")
        assert await values_at(leader) == [b"0", b"1", *(b"new %d" % n for n in range(6))]

    run_cluster(scenario)
