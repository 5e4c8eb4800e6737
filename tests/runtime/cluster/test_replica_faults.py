"""What becomes of replicated partitions when disks fail, retention passes and topics change."""

import asyncio
import time

import pytest

from goqueue.base.errors import (
    LeaderNotAvailableError,
    NodeRefusedError,
    NotLeaderError,
    TopicNotFoundError,
)
from goqueue.base.ids import PartitionId
from goqueue.config.model import BrokerConfig
from goqueue.core.cluster.commands import AddPartitions, ConfigureTopic, DeleteTopic
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.replication.replica import STATE_LOG
from goqueue.runtime.broker import Broker
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.own_rows import append_own
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.maintenance import Maintenance
from goqueue.runtime.state_records import change_row
from goqueue.storage.replica_journal import ReplicaJournal
from goqueue.testing.disk import MemoryDisk
from tests.runtime.cluster.replica_steps import (
    end_at,
    followers_of,
    led_by_another,
    publish_once,
    values_at,
    whole,
)
from tests.runtime.grants import PUBLISHING
from tests.sim.cluster_clients import log_bytes, place_of
from tests.sim.cluster_nodes import SimCluster, SimNode, run_cluster

PLACE = place_of("orders")


# Disks.


def test_a_leader_whose_disk_fails_gives_the_partition_up() -> None:
    """Who waits is in doubt; another replica in sync leads (hard case 19)."""

    async def scenario(cluster: SimCluster) -> None:
        first = await whole(cluster)
        await publish_once(cluster, b"a")
        first.disk.fail_sync("logs/orders/0/*.log", forever=True)
        with pytest.raises(NotLeaderError):
            await publish_once(cluster, b"b")
        second = await led_by_another(cluster, first)
        assert first.name not in cluster.record("orders").isr_ids
        assert (await publish_once(cluster, b"c")).replicas >= 2

        first.disk.heal()
        first.cut_power()
        first.begin()
        await cluster.until(cluster.is_whole)
        values = await values_at(second)
        assert values[0] == b"a"
        assert values[-1] == b"c"
        await cluster.until(lambda: end_at(cluster, first, len(values)))
        assert log_bytes(cluster, first, PLACE) == log_bytes(cluster, second, PLACE)

    run_cluster(scenario)


def test_a_follower_without_room_leaves_and_comes_back() -> None:
    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        follower = followers_of(cluster, leader)[0]
        follower.disk.fill_up(0, path_glob="logs/orders/*")
        waiting = asyncio.ensure_future(publish_once(cluster, b"a"))
        await cluster.until(lambda: follower.name not in cluster.record("orders").isr_ids)
        assert (await waiting).replicas == 2

        follower.disk.make_room()
        await cluster.until(cluster.is_whole)
        await cluster.until(lambda: end_at(cluster, follower, 1))

    run_cluster(scenario)


def test_a_wiped_node_copies_everything_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        for number in range(20):
            await publish_once(cluster, b"%d" % number)
        follower = followers_of(cluster, leader)[0]
        follower.cut_power()
        cluster.forget_disk(follower)
        assert follower.name not in cluster.record("orders").isr_ids
        follower.begin()
        await cluster.until(cluster.is_whole)
        await cluster.until(lambda: end_at(cluster, follower, 20))
        assert log_bytes(cluster, follower, PLACE) == log_bytes(cluster, leader, PLACE)

    run_cluster(scenario)


def test_all_nodes_lose_power_at_once() -> None:
    """Everything acknowledged is there, and all replicas are in sync again (hard case 5)."""

    async def scenario(cluster: SimCluster) -> None:
        await whole(cluster)
        for number in range(5):
            await publish_once(cluster, b"%d" % number)
        for node in cluster.nodes.values():
            node.cut_power()
        for node in cluster.nodes.values():
            node.begin()
        await cluster.until(cluster.is_whole)
        leader = cluster.leader("orders")
        await cluster.until(lambda: end_at(cluster, leader, 5))
        assert await values_at(leader) == [b"0", b"1", b"2", b"3", b"4"]

    run_cluster(scenario)


def test_what_an_isolated_leader_wrote_is_cut_off_when_it_returns() -> None:
    """It acknowledged none of it (hard cases 2, 3)."""

    async def scenario(cluster: SimCluster) -> None:
        first = await whole(cluster)
        await publish_once(cluster, b"a")
        others = [one.name for one in followers_of(cluster, first)]
        cluster.peers.isolate(first.name, [*others, "controller"])
        lost = asyncio.ensure_future(publish_once(cluster, b"lost"))
        second = await led_by_another(cluster, first)
        await publish_once(cluster, b"b", b"c")
        assert not lost.done()
        cluster.peers.heal()
        with pytest.raises(NotLeaderError):
            await lost
        await cluster.until(cluster.is_whole)
        await cluster.until(lambda: end_at(cluster, first, 3))
        assert await values_at(second) == [b"a", b"b", b"c"]
        assert log_bytes(cluster, first, PLACE) == log_bytes(cluster, second, PLACE)

    run_cluster(scenario)


def test_retention_passes_a_follower_that_was_away() -> None:
    """It begins again where the leader's log starts (hard case 18)."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster, segment_bytes=1 << 16, retention_bytes=1 << 16)
        away = followers_of(cluster, leader)[0]
        await publish_once(cluster, b"first")
        away.kill()
        await cluster.until(lambda: away.name not in cluster.record("orders").isr_ids)
        for number in range(12):
            await publish_once(cluster, b"%02d" % number + bytes(20_000))

        async def keep() -> None:
            Maintenance(leader.broker).keep(leader.broker.topic("orders"))

        await leader.run(keep())
        start = cluster.partition(leader, "orders").log.start_offset
        assert start > 1
        away.begin()
        await cluster.until(cluster.is_whole)
        end = cluster.partition(leader, "orders").log.end_offset
        await cluster.until(lambda: end_at(cluster, away, end))
        assert cluster.partition(away, "orders").log.start_offset == start
        third = next(one for one in followers_of(cluster, leader) if one is not away)
        await cluster.until(lambda: cluster.partition(third, "orders").log.start_offset == start)
        await publish_once(cluster, b"last")

    run_cluster(scenario)


# Topics.


def test_topics_are_made_changed_and_removed_on_all_nodes() -> None:
    async def scenario(cluster: SimCluster) -> None:
        node = cluster.nodes[cluster.names[0]]
        topic = await node.run(node.broker.changes.make("orders", partitions=3))
        assert len(topic.partitions) == 3
        await cluster.until(cluster.is_whole)
        assert all(
            len(one.broker.topic("orders").partitions) == 3 for one in cluster.nodes.values()
        )
        await node.run(node.broker.changes.change("orders", {"retention_ms": 1_000}))
        assert node.broker.topic("orders").settings.retention_ms == 1_000
        other = cluster.nodes[cluster.names[1]]
        await cluster.until(lambda: other.broker.topic("orders").settings.retention_ms == 1_000)
        await node.run(node.broker.changes.remove("orders"))
        with pytest.raises(TopicNotFoundError):
            node.broker.topic("orders")
        await cluster.until(lambda: not other.disk.exists("logs/orders"))
        assert ReplicaJournal(other.disk.reopen()).find is not None

    run_cluster(scenario)


def test_a_topic_that_was_made_again_while_a_node_was_down_is_another_one() -> None:
    """Its folder of the old topic is moved away, whatever is in it (hard case 17)."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        for number in range(9):
            await publish_once(cluster, b"old %d" % number)
        away = followers_of(cluster, leader)[0]
        away.kill()
        cluster.controller.decide(DeleteTopic(name="orders"))
        await cluster.create("orders")
        for number in range(3):
            await publish_once(cluster, b"new %d" % number)
        away.begin()
        await cluster.until(cluster.is_whole)
        await cluster.until(lambda: end_at(cluster, away, 3))
        found = {log_bytes(cluster, node, PLACE) for node in cluster.nodes.values()}
        assert len(found) == 1
        assert b"old" not in found.pop()

    run_cluster(scenario)


def test_a_topic_that_was_deleted_while_a_node_was_down_leaves_nothing_there() -> None:
    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        await whole(cluster, "other")
        await publish_once(cluster, b"a")
        away = followers_of(cluster, leader)[0]
        away.kill()
        cluster.controller.decide(DeleteTopic(name="orders"))
        away.begin()
        await cluster.until(cluster.is_whole)
        await cluster.until(lambda: not away.disk.exists("logs/orders"))
        assert away.disk.exists("logs/other")

    run_cluster(scenario)


def test_more_partitions_are_opened_and_led() -> None:
    async def scenario(cluster: SimCluster) -> None:
        await whole(cluster)
        await publish_once(cluster, b"a")
        cluster.controller.decide(AddPartitions(name="orders", count=4))
        await cluster.until(cluster.is_whole)
        for node in cluster.nodes.values():
            assert len(node.broker.topic("orders").partitions) == 4
        assert (await publish_once(cluster, b"b")).base_offset == 1

    run_cluster(scenario)


def test_fewer_replicas_may_be_needed_from_a_moment_on() -> None:
    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        for node in followers_of(cluster, leader):
            node.kill()
        group = leader.replicas.groups[PLACE]
        await cluster.until(
            lambda: group.leader is not None and group.leader.state.isr == (leader.name,)
        )
        cluster.controller.decide(
            ConfigureTopic(name="orders", settings={"min_insync_replicas": 1})
        )
        await cluster.until(lambda: group.is_alone)
        assert (await publish_once(cluster, b"a")).replicas == 1

    run_cluster(scenario)


def test_a_data_directory_of_a_single_broker_is_refused() -> None:
    """Its topics would be taken for those of somebody else, and removed."""

    async def scenario(cluster: SimCluster) -> None:
        disk = MemoryDisk()
        single = Broker(BrokerConfig(sync_threads=0), disk)
        await single.start()
        single.create_topic("orders", partitions=1)
        await single.stop()
        topology = cluster.nodes[cluster.names[0]].broker.topology
        broker = Broker(BrokerConfig(sync_threads=0), disk.reopen(), topology=topology)
        with pytest.raises(NodeRefusedError):
            await broker.start()

    run_cluster(scenario)


# State.


def test_internal_topics_come_from_the_cluster_and_their_leaders_coordinate() -> None:
    """State is loaded where its partition is led, and dropped where it is not (rule of gain)."""

    async def scenario(cluster: SimCluster) -> None:
        await cluster.create("__consumer_offsets", partitions=5)
        await cluster.until(cluster.is_whole)
        first = cluster.leader("__consumer_offsets", 3)
        home = next(
            name for name in map(str, range(999)) if first.broker.state.partition_of(name) == 3
        )
        await cluster.until(lambda: _is_loaded(first, home))
        for node in followers_of(cluster, first):
            assert not _is_loaded(node, home)
        first.kill()
        await cluster.until(
            lambda: (
                cluster.record("__consumer_offsets", 3).leader_id not in (None, first.name)
                and cluster.is_led("__consumer_offsets")
            )
        )
        second = cluster.leader("__consumer_offsets", 3)
        await cluster.until(lambda: _is_loaded(second, home))
        first.begin()
        await cluster.until(cluster.is_whole)
        assert not _is_loaded(first, home)

    run_cluster(scenario)


def _is_loaded(node: SimNode, home: str) -> bool:
    try:
        node.broker.state.check(home)
    except Exception:  # noqa: BLE001 - not_coordinator
        return False
    return True


def test_state_that_is_not_made_yet_is_not_available() -> None:
    async def scenario(cluster: SimCluster) -> None:
        broker = cluster.nodes[cluster.names[0]].broker
        with pytest.raises(LeaderNotAvailableError):
            await broker.state.prepare()

    run_cluster(scenario)


def test_a_state_log_is_replicated_with_its_partition() -> None:
    """Made by the leader when it is first needed, by followers when frames of it come."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        await publish_once(cluster, b"a")

        def state_of(node: SimNode) -> Partition:
            state = node.broker.topic(PLACE.topic).state_of(PLACE.partition)
            assert state is not None
            return state

        async def write() -> None:
            state = leader.broker.topic(PLACE.topic).make_state(PLACE.partition)
            assert state.leadership.role is Role.LEADER
            append_own(state, [change_row("test/machine", 0, b"\x90")], timestamp_ns=1)
            await state.committed()

        await leader.run(write())
        for node in cluster.nodes.values():
            group = node.replicas.groups[PLACE]
            assert group.logs[STATE_LOG].own.end_offset == 1
            assert state_of(node).log.durable_offset == 1
        leader.kill()
        second = await led_by_another(cluster, leader)
        state = state_of(second)
        assert state.leadership.role is Role.LEADER
        await cluster.until(lambda: state.committed_offset == 1)

    run_cluster(scenario)


# Logs that lose what was acknowledged.


def test_a_log_that_came_back_shorter_goes_on_behind_what_its_state_knows() -> None:
    """All nodes lose power with an ``os`` topic; new messages are not taken for lost ones."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster, durability="os")
        for number in range(3):
            await publish_once(cluster, b"%d" % number)
        hour_us = time.time_ns() // 1_000 + 3_600_000_000
        draft = Draft(value=b"later", timestamp_us=time.time_ns() // 1_000, deliver_at_us=hour_us)

        async def cancel() -> None:
            frames = memoryview(frame_drafts([draft]))
            await leader.broker.topic("orders").publish(PUBLISHING, PartitionId(0), frames)
            await leader.broker.delays.cancel("orders", 0, 3)

        await leader.run(cancel())
        # State waits for disks, messages of this topic do not.
        await cluster.advance_ms(1_000)
        for node in cluster.nodes.values():
            node.cut_power()
        for node in cluster.nodes.values():
            node.disk.make_directory("logs/orders/0")
            node.begin()
        await cluster.until(cluster.is_whole)
        leader = cluster.leader("orders")
        published = await publish_once(cluster, b"new")
        assert published.base_offset >= 4
        await cluster.until(lambda: end_at(cluster, leader, published.base_offset + 1))
        assert (await values_at(leader))[-1] == b"new"
        nodes, end = cluster.nodes.values(), published.base_offset + 1
        await cluster.until(lambda: all(end_at(cluster, node, end) for node in nodes))
        assert len({log_bytes(cluster, node, PLACE) for node in nodes}) == 1

    run_cluster(scenario)
