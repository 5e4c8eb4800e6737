"""Partitions of real brokers are replicated: acknowledged is what every replica in sync has."""

import asyncio

import pytest

from goqueue.base.errors import (
    NodeFencedError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
)
from goqueue.base.ids import Epoch, Offset, ProducerId, Sequence
from goqueue.core.cluster.commands import (
    ElectLeaders,
    PartName,
)
from goqueue.core.record.message import Draft
from goqueue.core.record.repack import frame_drafts
from goqueue.core.record.stamp import ProducerStamp
from goqueue.runtime.log.acks import Acks
from goqueue.runtime.log.fetch import Fetched, FetchPart, fetch
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.page import read_page
from goqueue.runtime.log.published import Published
from tests.runtime.cluster.replica_steps import (
    end_at,
    followers_of,
    led_by_another,
    publish_once,
    values_at,
    whole,
)
from tests.runtime.grants import FETCHING, PUBLISHING
from tests.sim.cluster_clients import frames_of, log_bytes, place_of
from tests.sim.cluster_nodes import SimCluster, run_cluster

# Acknowledgements.


def test_what_is_acknowledged_is_on_every_disk_and_survives_its_leader() -> None:
    async def scenario(cluster: SimCluster) -> None:
        first = await whole(cluster)
        published = await publish_once(cluster, b"a", b"b")
        assert (published.base_offset, published.replicas) == (0, 3)
        for node in cluster.nodes.values():
            assert cluster.partition(node, "orders").log.durable_offset == 2

        first.cut_power()
        second = await led_by_another(cluster, first)
        # It keeps the high watermark it knows until its replicas in sync have fetched.
        await cluster.until(lambda: end_at(cluster, second, 2))
        assert await values_at(second) == [b"a", b"b"]
        assert (await publish_once(cluster, b"c")).base_offset == 2

        first.begin()
        await cluster.until(cluster.is_whole)
        assert cluster.partition(first, "orders").leadership.role is Role.FOLLOWER
        await cluster.until(lambda: end_at(cluster, first, 3))
        assert (
            len({log_bytes(cluster, node, place_of("orders")) for node in cluster.nodes.values()})
            == 1
        )

    run_cluster(scenario)


def test_acks_wait_for_nothing_for_the_leader_or_for_all() -> None:
    """An isolated leader answers ``leader`` and ``none``, and nobody who asks for all."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        cluster.peers.isolate(leader.name, [one.name for one in followers_of(cluster, leader)])
        assert (await publish_once(cluster, b"a", acks=Acks.NONE)).base_offset == 0
        published = await publish_once(cluster, b"b", acks=Acks.LEADER)
        assert (published.base_offset, published.replicas) == (1, 1)
        assert cluster.partition(leader, "orders").log.durable_offset == 2
        waiting = asyncio.ensure_future(publish_once(cluster, b"c"))
        await cluster.advance_ms(500)
        assert not waiting.done()

        cluster.peers.heal()
        assert (await waiting).base_offset == 2

    run_cluster(scenario)


def test_too_few_replicas_are_told_before_anything_is_appended() -> None:
    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        for node in followers_of(cluster, leader):
            node.kill()
        await cluster.until(lambda: cluster.record("orders").isr_ids == (leader.name,))
        await cluster.until(
            lambda: leader.replicas.groups[place_of("orders")].leader.state.isr == (leader.name,)  # type: ignore[union-attr]
        )
        with pytest.raises(NotEnoughReplicasError):
            await publish_once(cluster, b"a")
        assert cluster.partition(leader, "orders").log.end_offset == 0

        for node in followers_of(cluster, leader):
            node.begin()
        await cluster.until(cluster.is_whole)
        assert (await publish_once(cluster, b"a")).replicas == 3

    run_cluster(scenario)


def test_a_topic_that_does_not_wait_for_disks_waits_for_replicas() -> None:
    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster, durability="os")
        published = await publish_once(cluster, b"a")
        assert published.replicas == 3
        assert all(
            cluster.partition(node, "orders").log.end_offset == 1 for node in cluster.nodes.values()
        )
        leader.kill()
        second = await led_by_another(cluster, leader)
        await cluster.until(lambda: end_at(cluster, second, 1))
        assert await values_at(second) == [b"a"]

    run_cluster(scenario)


def test_a_single_replica_commits_by_its_own_disk() -> None:
    """The quick paths are taken where nobody else is in sync, and only there."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster, replication_factor=1)
        partition = cluster.partition(leader, "orders")
        assert partition.leadership.is_alone

        async def at_once() -> object:
            return leader.broker.topic("orders").small.publish_at_once(
                PUBLISHING, 0, frames_of(b"a")
            )

        outcome = await leader.run(at_once())
        assert isinstance(outcome, Published)
        assert partition.visible_offset == 1
        replicated = await whole(cluster, "other")
        assert not cluster.partition(replicated, "other").leadership.is_alone

    run_cluster(scenario)


def test_sequences_of_messages_that_were_all_repeats_survive_the_leader() -> None:
    """A batch without messages has no offset of its own; replicas get it with an empty one."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster, dedup_window_ms=60_000)
        topic = leader.broker.topic("orders")

        def frame(value: bytes, sequence: int) -> memoryview:
            stamp = ProducerStamp(ProducerId(7), Epoch(0), Sequence(sequence))
            now_us = leader.broker.clock.now_us()
            draft = Draft(value=value, dedup_id=b"same", timestamp_us=now_us)
            return memoryview(frame_drafts([draft], stamp))

        await leader.run(topic.publish(PUBLISHING, 0, frame(b"a", 0)))
        repeat = await leader.run(topic.publish(PUBLISHING, 0, frame(b"b", 1)))
        assert [one.offset for one in repeat.repeats] == [0]
        leader.cut_power()
        second = await led_by_another(cluster, leader)
        stamp = ProducerStamp(ProducerId(7), Epoch(0), Sequence(2))
        published = await publish_once(cluster, b"c", stamp=stamp)
        assert not published.is_duplicate
        await cluster.until(lambda: end_at(cluster, second, 3))
        assert await values_at(second) == [b"a", b"c"]

    run_cluster(scenario)


# Who answers.


def test_only_the_leader_answers() -> None:
    """Neither followers nor nodes without a replica serve readers or writers."""

    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster, replication_factor=2)
        await publish_once(cluster, b"a")
        for node in followers_of(cluster, leader):
            topic = node.broker.topic("orders")
            with pytest.raises(NotLeaderError):
                await node.run(topic.publish(PUBLISHING, 0, frames_of(b"x")))
            parts = [FetchPart(partition=0, offset=0)]
            (outcome,) = await node.run(fetch(FETCHING, topic, parts, bytes_max=1000, wait_ms=0))
            assert isinstance(outcome, NotLeaderError)
            with pytest.raises(NotLeaderError):
                await node.run(
                    read_page(FETCHING, topic, 0, offset=Offset(0), count_max=1, bytes_max=1_000)
                )
            with pytest.raises(NotLeaderError):
                topic.partition(0).find_time(0)

    run_cluster(scenario)


def test_a_leader_without_its_lease_answers_nothing() -> None:
    async def scenario(cluster: SimCluster) -> None:
        leader = await whole(cluster)
        await publish_once(cluster, b"a")
        cluster.controller.is_stopped = True
        await cluster.until(lambda: not leader.is_live)
        with pytest.raises(NodeFencedError):
            await publish_once(cluster, b"b")
        with pytest.raises(NodeFencedError):
            cluster.partition(leader, "orders").check_offset(Offset(0))

        cluster.controller.is_stopped = False
        await cluster.until(lambda: leader.is_live)
        assert await values_at(leader) == [b"a"]

    run_cluster(scenario)


def test_readers_wait_for_what_a_new_leader_does_not_know_to_be_committed() -> None:
    """They are not told that their offset is out of range (rule 7)."""

    async def scenario(cluster: SimCluster) -> None:
        first = await whole(cluster)
        for value in (b"a", b"b", b"c"):
            await publish_once(cluster, value)
        first.kill()
        second = await led_by_another(cluster, first)
        partition = cluster.partition(second, "orders")
        topic = second.broker.topic("orders")
        third = next(one for one in followers_of(cluster, second) if one.is_up)
        cluster.peers.isolate(second.name, [third.name])
        await second.run(asyncio.sleep(0))
        if partition.visible_offset < 3:
            parts = [FetchPart(partition=0, offset=3)]
            (outcome,) = await second.run(fetch(FETCHING, topic, parts, bytes_max=99, wait_ms=5))
            assert isinstance(outcome, Fetched)
            assert outcome.next_offset == 3
        with pytest.raises(OffsetOutOfRangeError):
            partition.check_offset(Offset(4))
        cluster.peers.heal()
        await cluster.until(lambda: end_at(cluster, second, 3))
        assert await values_at(second) == [b"a", b"b", b"c"]

    run_cluster(scenario)


def test_what_waits_when_a_leader_is_replaced_is_in_doubt() -> None:
    """It is told not_leader, and a repeat with its sequence writes it once (hard cases 3, 11)."""

    async def scenario(cluster: SimCluster) -> None:
        first = await whole(cluster)
        stamp = ProducerStamp(ProducerId(9), Epoch(0), Sequence(0))
        await publish_once(cluster, b"a", stamp=stamp)
        cluster.peers.isolate(first.name, [one.name for one in followers_of(cluster, first)])
        later = ProducerStamp(ProducerId(9), Epoch(0), Sequence(1))
        waiting = asyncio.ensure_future(publish_once(cluster, b"b", stamp=later))
        await cluster.advance_ms(100)
        assert cluster.partition(first, "orders").log.end_offset == 2
        target = followers_of(cluster, first)[0].name
        others = [one for one in cluster.record("orders").replicas if one == target]
        assert others
        cluster.controller.decide(
            ElectLeaders(parts=[PartName(topic="orders", partition=0)], kind="preferred")
        )
        if cluster.record("orders").leader_id == first.name:
            cluster.peers.isolate(first.name, ["controller"])
        second = await led_by_another(cluster, first)
        cluster.peers.heal()
        with pytest.raises(NotLeaderError):
            await waiting
        published = await publish_once(cluster, b"b", stamp=later)
        assert (published.base_offset, published.is_duplicate) == (1, False)
        await cluster.until(cluster.is_whole)
        await cluster.until(lambda: end_at(cluster, first, 2))
        assert await values_at(second) == [b"a", b"b"]

    run_cluster(scenario)
