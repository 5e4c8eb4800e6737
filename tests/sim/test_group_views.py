"""Groups whose coordinator and whose leaders are different nodes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from goqueue.base.errors import (
    DeadlineExceededError,
    GroupNotFoundError,
    NodeFencedError,
    NotLeaderError,
    UnknownMemberError,
)
from goqueue.base.ids import PartitionId, TopicName, TopicPartition
from goqueue.core.delivery.runs import set_of
from goqueue.runtime import broker as broker_module
from goqueue.runtime.queue.leasing import Leased
from goqueue.testing.sim import Simulation
from tests.sim.two_nodes import ORDERS, A, B, TwoNodes, place


@pytest.fixture(autouse=True)
def _few_state_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "STATE_PARTITIONS", 2)


Story = Callable[[TwoNodes], Coroutine[Any, Any, None]]


def play(story: Story, *, seed: int = 1, partitions: int = 2) -> None:
    simulation = Simulation(seed)

    async def main(_: Simulation) -> None:
        nodes = await TwoNodes(simulation).start(partitions=partitions)
        await story(nodes)
        nodes.check()
        await nodes.stop()

    simulation.run(main)
    assert not simulation.failures, simulation.failures


def places(parts: list[Leased]) -> list[int]:
    return [part.partition.partition for part in parts]


def test_a_member_polls_every_leader_it_needs() -> None:
    """One node hosts the group; the other leases its own partition by a view of it."""

    async def story(nodes: TwoNodes) -> None:
        await nodes.publish(0, "x")
        await nodes.publish(1, "y")
        member = await nodes.join()
        (here,), (there,) = await nodes.poll(A, member), await nodes.poll(B, member)

        assert (places([here]), places([there])) == ([0], [1])
        for part in (here, there):
            assert (await nodes.ack(part, member=member)).refused == []
        assert await nodes.poll(B, member) == []

    play(story)


def test_a_poll_that_waits_at_a_leader_is_answered() -> None:
    """It hears of messages, and of partitions that the group gives it."""

    async def story(nodes: TwoNodes) -> None:
        member = await nodes.join()
        poll = asyncio.ensure_future(nodes.poll(B, member, wait_ms=20_000))
        await asyncio.sleep(1)
        await nodes.publish(1, "y")
        assert places(await poll) == [1]

    play(story)


def test_a_new_owner_fences_the_old_one() -> None:
    """Its newer generation makes the leader ask the coordinator before it answers."""

    async def story(nodes: TwoNodes) -> None:
        first = await nodes.join("one")
        await nodes.poll(B, first)
        nodes.is_cut = True
        second = await nodes.join("two")
        hosted = nodes.coordinator().groups.get("g")
        owner = next(one for one in (first, second) if hosted.owns(one, place(1)))
        other = first if owner == second else second
        await nodes.publish(1, "y")
        nodes.is_cut = False
        parts = await nodes.poll(B, owner, seen=hosted.generation)

        assert places(parts) == [1]
        with pytest.raises(NotLeaderError):
            await nodes.poll(B, other, seen=1)
        assert (await nodes.ack(parts[0])).refused == []

    play(story)


def test_what_a_member_held_that_died_is_delivered_again() -> None:
    """Its session ends at the coordinator; the leader takes its lease back before it is over."""

    async def story(nodes: TwoNodes) -> None:
        options = {"session_timeout": "6s", "visibility_timeout": "10m", "backoff": "0s"}
        await nodes.publish(1, "y")
        lost = await nodes.join("lost", **options)
        assert places(await nodes.poll(B, lost)) == [1]
        await asyncio.sleep(10)
        member = await nodes.join("next", **options)
        (part,) = await nodes.poll(B, member)

        assert part.failures == {0: 1}
        await nodes.ack(part)
        with pytest.raises(UnknownMemberError):
            await nodes.poll(B, lost)

    play(story)


def test_polls_at_a_leader_are_heartbeats() -> None:
    """A member that its coordinator never hears of directly stays."""

    async def story(nodes: TwoNodes) -> None:
        member = await nodes.join(session_timeout="8s")
        for _ in range(30):
            await nodes.poll(B, member, wait_ms=1_000)
        hosted = nodes.coordinator().groups.get("g")

        assert member in hosted.members
        await asyncio.sleep(20)
        assert member not in hosted.members

    play(story)


def test_a_coordinator_moves() -> None:
    """Members go on at both nodes; the new coordinator hosts, the old one looks on."""

    async def story(nodes: TwoNodes) -> None:
        await nodes.publish(0, "x0")
        await nodes.publish(1, "y0")
        member = await nodes.join()
        held = [*await nodes.poll(A, member), *await nodes.poll(B, member)]
        await nodes.move(nodes.coordinator_place("g"))
        assert nodes.coordinator() is nodes.brokers[B]
        for part in held:
            assert (await nodes.ack(part, member=member)).refused == []
        await nodes.publish(0, "x1")
        await nodes.publish(1, "y1")
        parts = [*await nodes.poll(A, member), *await nodes.poll(B, member)]

        assert places(parts) == [0, 1]
        assert "g" not in nodes.brokers[A].groups
        await nodes.move(nodes.coordinator_place("g"))
        await nodes.ack(parts[0], member=member)

    play(story)


def test_a_leader_moves() -> None:
    """The lease goes with the partition, and its receipt settles at the new leader."""

    async def story(nodes: TwoNodes) -> None:
        await nodes.publish(1, "y0", "y1")
        member = await nodes.join(ordering="none")
        (part,) = await nodes.poll(B, member, limit=1)
        await nodes.move(place(1))
        (rest,) = await nodes.poll(A, member)

        assert list(set_of(rest.order)) == [1]
        assert (await nodes.ack(part)).refused == []
        await nodes.move(place(1), pause_s=0.5)
        assert (await nodes.ack(rest)).refused == []
        assert await nodes.poll(B, member) == []

    play(story)


def test_everything_moves_at_once() -> None:
    """A node takes over all that the other had: partitions first, or groups first."""

    async def story(nodes: TwoNodes) -> None:
        await nodes.publish(0, "x0")
        member = await nodes.join(ordering="key")
        (part,) = await nodes.poll(A, member)
        await asyncio.gather(
            nodes.move(place(0), pause_s=0.2), nodes.move(nodes.coordinator_place("g"))
        )
        assert (await nodes.ack(part)).refused == []
        await nodes.publish(0, "x1")
        assert places(await nodes.poll(B, member)) == [0]

    play(story)


def test_a_deleted_group_leaves_nothing_at_leaders() -> None:
    """Also where nobody asks; and one made anew begins anew."""

    async def story(nodes: TwoNodes) -> None:
        await nodes.publish(1, "y0")
        member = await nodes.join()
        (part,) = await nodes.poll(B, member)
        await nodes.ack(part)
        await nodes.coordinator().groups.delete("g", is_forced=True)
        await asyncio.sleep(1)
        assert not nodes.brokers[B].consume.ledgers.has("g")
        assert nodes.brokers[B].state.keys("delivery/", place(1)) == []
        with pytest.raises(GroupNotFoundError):
            await nodes.poll(B, member)
        nodes.checker.acked.clear()
        member = await nodes.join()
        assert places(await nodes.poll(B, member)) == [1]

    play(story)


def test_a_group_made_anew_behind_a_cut_begins_anew() -> None:
    """The leader saw neither its end nor its beginning."""

    async def story(nodes: TwoNodes) -> None:
        await nodes.publish(1, "y0")
        member = await nodes.join()
        (part,) = await nodes.poll(B, member)
        await nodes.ack(part)
        nodes.is_cut = True
        await asyncio.sleep(40)
        await nodes.coordinator().groups.delete("g", is_forced=True)
        member = await nodes.join()
        nodes.is_cut = False
        nodes.checker.acked.clear()

        assert places(await nodes.poll(B, member)) == [1]

    play(story)


def test_those_who_are_known_are_served_without_a_coordinator() -> None:
    """The view does for a while; who is not in it is to ask again."""

    async def story(nodes: TwoNodes) -> None:
        await nodes.publish(1, "y0")
        member = await nodes.join()
        assert await nodes.poll(B, member, limit=1)
        nodes.is_cut = True
        await nodes.publish(1, "y1")
        assert places(await nodes.poll(B, member)) == [1]
        with pytest.raises(DeadlineExceededError):
            await nodes.poll(B, "stranger")

    play(story)


def test_a_fenced_coordinator_shows_nothing() -> None:
    """Its lease is over: another one may have taken its place."""

    async def story(nodes: TwoNodes) -> None:
        member = await nodes.join()
        nodes.fenced.add(A)
        with pytest.raises(NodeFencedError):
            await nodes.poll(B, member)
        nodes.fenced.clear()
        assert await nodes.poll(B, member) == []

    play(story)


def test_a_group_that_is_idle_costs_little() -> None:
    """Two requests a minute while there are ledgers, and none once there are not."""

    async def story(nodes: TwoNodes) -> None:
        member = await nodes.join(session_timeout="30m")
        await nodes.publish(1, "y0")
        await nodes.poll(B, member)
        await asyncio.sleep(10)
        before = nodes.requests
        await asyncio.sleep(600)
        assert nodes.requests - before <= 21

    play(story)


def test_offsets_are_committed_and_reset_at_leaders() -> None:
    """By the owner of the partition, of the generation the group is in."""

    async def story(nodes: TwoNodes) -> None:
        await nodes.publish(1, "y0", "y1")
        member = await nodes.join()
        there = nodes.brokers[B].consume
        hosted = nodes.coordinator().groups.get("g")
        name = TopicPartition(TopicName(ORDERS), PartitionId(1))
        end = nodes.brokers[B].topic(ORDERS).partition(1).visible_offset
        await there.commit_offsets("g", member, hosted.generation, {name: end})
        (progress,) = await there.progress("g")
        assert (progress.committed_offset, progress.lag) == (2, 0)
        await there.reset_offsets("g", there.resolve(ORDERS, to="earliest", partitions=[1]))

        assert [list(set_of(one.order)) for one in await nodes.poll(B, member)] == [[0, 1]]

    play(story)


def test_what_a_member_may_hold_is_shared_out_among_leaders() -> None:
    """Two leaders together give no more than one broker would, and each gives something."""

    async def story(nodes: TwoNodes) -> None:
        for number in (0, 1):
            await nodes.publish(number, *map(str, range(10)))
        member = await nodes.join(max_in_flight=7)
        held = {node: [await nodes.poll(node, member) for _ in range(3)] for node in (A, B)}
        counts = {
            node: sum(len(set_of(part.order)) for parts in polls for part in parts)
            for node, polls in held.items()
        }
        first = held[B][0][0]
        await nodes.ack(first, member=member)
        again = await nodes.poll(B, member)

        assert sum(counts.values()) == 7
        assert min(counts.values()) == 3
        assert sum(len(set_of(part.order)) for part in again) == len(set_of(first.order))
        await nodes.move(place(1))
        assert await nodes.poll(A, member) == []

    play(story)
