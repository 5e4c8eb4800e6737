"""Damaged frames of a replicated log are fetched from another replica, whoever leads."""

import asyncio

import pytest

from goqueue.base.errors import LeaderNotAvailableError
from goqueue.base.ids import Offset
from goqueue.core.record.frame import read_header
from tests.runtime.cluster.replica_steps import (
    end_at,
    followers_of,
    led_by_another,
    publish_once,
    values_at,
    whole,
)
from tests.runtime.rig import read_all
from tests.sim.cluster_clients import log_bytes, place_of
from tests.sim.cluster_nodes import SimCluster, SimNode, run_cluster

PLACE = place_of("orders")
LOG = "logs/orders/0/00000000000000000000.log"


def frame_starts(node: SimNode, cluster: SimCluster) -> list[int]:
    """Return where the frames of a log begin that is one segment."""
    raw = log_bytes(cluster, node, PLACE)
    starts, position = [], 0
    while position < len(raw):
        starts.append(position)
        position += read_header(raw, position).size
    return [*starts, position]


def hurt(cluster: SimCluster, node: SimNode, *frames: int) -> None:
    """Flip a bit in some frames as they lie on a node's disk."""
    starts = frame_starts(node, cluster)
    for number in frames:
        node.disk.flip_bits(LOG, [starts[number + 1] - 1])


async def published(cluster: SimCluster, count: int = 6) -> list[bytes]:
    """Publish values, one frame each, that every replica has by fsync."""
    values = [b"value-%d" % number for number in range(count)]
    for value in values:
        await publish_once(cluster, value)
    nodes = cluster.nodes.values()
    await cluster.until(lambda: all(end_at(cluster, node, count) for node in nodes))
    return values


async def shown(cluster: SimCluster, count: int) -> list[bytes]:
    """Return what the leader shows when it shows so many."""
    node = cluster.leader("orders")
    await cluster.until(lambda: end_at(cluster, node, count))
    return await values_at(node)


async def mended(cluster: SimCluster, node: SimNode) -> None:
    """Wait until nothing of a node's log is known to be bad."""
    log = cluster.partition(node, "orders").log
    await cluster.until(
        lambda: not log.recovery.gaps and node.replicas.repairs.messages_repaired > 0
    )


@pytest.mark.parametrize("frames", [(0,), (3,), (5,), (1, 2, 4)], ids=str)
def test_a_reader_gets_the_messages_and_no_gap(frames: tuple[int, ...]) -> None:
    """Damage of a leader, anywhere in the segment, is repaired from a follower when read."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        values = await published(cluster)
        hurt(cluster, leader, *frames)

        messages, gaps = await leader.run(read_all(leader.broker.topic("orders"), 0))
        assert [message.value for message in messages] == values
        assert gaps == []
        assert leader.replicas.repairs.messages_repaired == len(frames)
        found = {log_bytes(cluster, node, PLACE) for node in cluster.nodes.values()}
        assert len(found) == 1
        # It goes on as a log that never was damaged, over a restart, too.
        await publish_once(cluster, b"next")
        leader.cut_power()
        leader.begin()
        await cluster.until(cluster.is_whole)
        assert await shown(cluster, len(values) + 1) == [*values, b"next"]

    run_cluster(scenario)


def test_a_replica_that_comes_back_brings_what_the_others_miss() -> None:
    """Meanwhile there is a gap, which is told; nobody waits for what is not in sync."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        values = await published(cluster)
        for follower in followers_of(cluster, leader):
            hurt(cluster, follower, 2, 3)
        leader.kill()
        second = await led_by_another(cluster, leader)
        await cluster.until(lambda: end_at(cluster, second, len(values)))
        messages, gaps = await second.run(read_all(second.broker.topic("orders"), 0))
        assert [message.value for message in messages] == values[:2] + values[4:]
        assert [(gap.start_offset, gap.end_offset) for gap in gaps] == [(2, 4)]

        leader.begin()
        await cluster.until(cluster.is_whole)
        await mended(cluster, second)
        assert await shown(cluster, len(values)) == values

    run_cluster(scenario)


@pytest.mark.parametrize("frame", [1, 5], ids=["in the middle", "the last"])
def test_damage_that_a_start_finds_is_repaired_in_the_background(frame: int) -> None:
    """The last frame included: where the log ends is learnt from the leader."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        values = await published(cluster)
        follower = followers_of(cluster, leader)[0]
        follower.kill()
        starts = frame_starts(leader, cluster)
        follower.disk.flip_bits(LOG, [starts[frame + 1] - 1])
        follower.begin()
        await cluster.until(cluster.is_whole)
        await mended(cluster, follower)
        await publish_once(cluster, b"next")
        await cluster.until(lambda: end_at(cluster, follower, len(values) + 1))
        frames = [bytes(piece) for piece in (log_bytes(cluster, follower, PLACE),)]
        assert frames == [log_bytes(cluster, leader, PLACE)]

    run_cluster(scenario)


def test_a_leader_whose_end_is_damaged_lets_another_lead() -> None:
    """Its end is a guess: what it would write behind it would leave offsets without messages."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        values = await published(cluster)
        starts = frame_starts(leader, cluster)
        for node in cluster.nodes.values():
            node.kill()
        leader.disk.flip_bits(LOG, [starts[-1] - 1])
        for node in cluster.nodes.values():
            node.begin()
        await cluster.until(cluster.is_whole)
        await mended(cluster, leader)
        second = cluster.leader("orders")
        published_at = await publish_once(cluster, b"next")
        assert published_at.base_offset == len(values)
        assert await values_at(second) == [*values, b"next"]

    run_cluster(scenario)


def test_what_no_replica_has_is_a_gap_and_followers_go_on_behind_it() -> None:
    """The gap is told to readers; a new replica gets everything else."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        values = await published(cluster)
        for node in cluster.nodes.values():
            hurt(cluster, node, 2)
        messages, gaps = await leader.run(read_all(leader.broker.topic("orders"), 0))
        assert [message.value for message in messages] == values[:2] + values[3:]
        assert [(gap.start_offset, gap.end_offset) for gap in gaps] == [(2, 3)]

        follower = followers_of(cluster, leader)[0]
        follower.cut_power()
        cluster.forget_disk(follower)
        follower.begin()
        await cluster.until(cluster.is_whole)
        assert (await publish_once(cluster, b"next")).replicas == 3

    run_cluster(scenario)


def test_what_retention_has_removed_is_looked_for_no_more() -> None:
    """Nothing is left to be repaired; snapshots that waited for it are made again."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        values = await published(cluster)
        for node in cluster.nodes.values():
            hurt(cluster, node, 2)
        leader.kill()
        leader.begin()
        await cluster.until(cluster.is_whole)
        partition = cluster.partition(leader, "orders")
        await cluster.until(lambda: bool(partition.log.recovery.gaps))
        partition.snapshots.unknown = tuple(partition.log.recovery.gaps)
        await leader.run(partition.roll())
        await publish_once(cluster, b"next")
        await leader.run(partition.roll())
        assert partition.log.trim(Offset(len(values))) == 1
        partition.note_trimmed()
        assert (partition.log.recovery.gaps, partition.snapshots.unknown) == ([], ())
        segments = len(partition.log.segments)
        await cluster.advance_ms(5_000)
        assert len(partition.log.segments) == segments

    run_cluster(scenario)


def test_a_reader_asks_again_while_a_replica_in_sync_cannot_be_reached() -> None:
    """A gap is told only where every replica that must have the message was asked."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        values = await published(cluster)
        hurt(cluster, leader, 4)
        cluster.peers.isolate(leader.name, [one.name for one in followers_of(cluster, leader)])
        partition = cluster.partition(leader, "orders")
        with pytest.raises(LeaderNotAvailableError):
            await leader.run(partition.read(Offset(4), end_offset=Offset(5), bytes_max=1_000))
        cluster.peers.heal()
        await cluster.until(cluster.is_whole)
        await mended(cluster, leader)
        assert await shown(cluster, len(values)) == values

    run_cluster(scenario)


def test_a_repair_that_fails_on_a_full_disk_is_tried_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        values = await published(cluster)
        hurt(cluster, leader, 1)
        leader.disk.fill_up(0, path_glob="logs/orders/*")
        with pytest.raises(AssertionError, match="damaged here"):
            await values_at(leader)
        leader.disk.make_room()
        await mended(cluster, leader)
        assert await values_at(leader) == values

    run_cluster(scenario)


def test_readers_of_the_same_damage_wait_for_one_repair() -> None:
    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        values = await published(cluster)
        hurt(cluster, leader, 1, 3)
        found = await asyncio.gather(*(values_at(leader) for _ in range(5)))
        assert all(one == values for one in found)
        assert leader.replicas.repairs.messages_repaired == 2

    run_cluster(scenario)
