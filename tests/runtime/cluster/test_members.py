"""Nodes join a cluster that works and are removed from it: the control plane by itself."""

import asyncio
import contextlib
import os

import pytest

from goqueue.base.errors import GoQueueError, NodeRefusedError, OperationActiveError
from goqueue.base.ids import NodeId
from goqueue.core.cluster.commands import AllocateIds, CreateTopic, RetireNode
from goqueue.core.cluster.node_verbs import REMOVED
from goqueue.core.cluster.replies import IdsReply
from goqueue.runtime.cluster.internal_topics import INTERNAL_TOPICS
from tests.runtime.cluster.control_fleet import FAST, ControlFleet, run_control

SEEDS = int(os.environ.get("GOQUEUE_MEMBER_SEEDS", "1"))


async def founded(fleet: ControlFleet) -> None:
    """Start all nodes and wait for the internal topics."""
    for name in fleet.places:
        fleet.start(name)
    await fleet.all_alive()
    await fleet.until(
        lambda: all(len(one.metadata.image.topics) == len(INTERNAL_TOPICS) for one in fleet.running)
    )


async def at_work(fleet: ControlFleet) -> None:
    """Have a cluster in which replicas are copied when they move."""
    await founded(fleet)
    fleet.copying = asyncio.get_running_loop().create_task(fleet.copy_replicas())


async def join(fleet: ControlFleet, name: str, known: tuple[str, ...] = ("a", "b")) -> None:
    """Start one more node, which is told of some of the others."""
    fleet.add(name)
    fleet.start(name, config=fleet.config(name, [*known, name]))
    await fleet.until(lambda: name in roles(fleet))


def roles(fleet: ControlFleet) -> dict[str, str]:
    """Return the members of the quorum as the controller has them."""
    for node in fleet.running:
        if node.metadata.leading.is_own:
            members, name_of = node.quorum.members, node.metadata.node_of
            found = {str(name_of(one)): "voter" for one in members.voters}
            return found | {str(name_of(one)): "learner" for one in members.learners}
    return {}


def test_a_node_joins_a_cluster_that_works() -> None:
    """It is told of two others, is registered, gets the log, and may hold replicas."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        await join(fleet, "d")
        await fleet.all_alive()
        await fleet.agree()
        await fleet.propose("d", CreateTopic(name="orders", partitions=4))
        image = fleet.node("a").metadata.image
        holders = {one for record in image.topic("orders").partitions for one in record.replicas}

        assert roles(fleet) == {"a": "voter", "b": "voter", "c": "voter", "d": "learner"}
        assert "d" in holders
        assert fleet.node("d").identity.cluster_id == fleet.node("a").identity.cluster_id

    run_control(scenario, seed=21, timers=FAST)


def test_two_that_join_vote_and_the_quorum_survives_two_deaths() -> None:
    """Three voters become five; two founders die, and changes are still decided."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        await join(fleet, "d")
        await join(fleet, "e", ("c",))
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5)
        await fleet.all_alive()
        fleet.kill("a")
        fleet.kill("b")
        await fleet.all_alive(["c", "d", "e"], seconds=20)
        await fleet.propose("e", CreateTopic(name="orders", partitions=4))

        assert "orders" in fleet.node("e").metadata.image.catalog.topics

    run_control(scenario, seed=22, timers=FAST)


def test_a_node_that_was_away_meets_the_new_ones() -> None:
    """The founder that returns knows none of the two that are needed for a majority with it."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        fleet.kill("a")
        await fleet.all_alive(["b", "c"])
        await join(fleet, "d", ("b", "c"))
        await join(fleet, "e", ("b", "c"))
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5)
        await fleet.all_alive(["b", "c", "d", "e"])
        fleet.kill("b")
        fleet.kill("c")
        fleet.start("a")
        await fleet.all_alive(["a", "d", "e"], seconds=40)

        await fleet.propose("a", CreateTopic(name="orders", partitions=4))

    run_control(scenario, seed=23, timers=FAST)


@pytest.mark.parametrize("victim", ["c", "controller"])
def test_a_node_is_removed_and_does_not_come_back(victim: str) -> None:
    """It loses its vote and its place, says so, and is refused until its disk is emptied."""

    async def scenario(fleet: ControlFleet) -> None:
        await at_work(fleet)
        await join(fleet, "d")
        await join(fleet, "e")
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5)
        name = fleet.controllers()[0] if victim == "controller" else NodeId(victim)
        others = [one for one in fleet.places if one != name]
        await fleet.propose(others[0], RetireNode(node=name, move_replicas=True))
        left = fleet.node(name)
        await fleet.until(lambda: name not in roles(fleet) and bool(roles(fleet)))
        await fleet.until(lambda: left.membership.failure is not None)

        assert fleet.alive_on(fleet.node(others[0])) == set(others)
        assert sorted(roles(fleet).values()) == ["learner", "voter", "voter", "voter"]
        assert not left.is_live
        fleet.kill(name)
        again = fleet.start(name)
        await fleet.until(lambda: again.failure is not None)
        assert isinstance(again.failure, NodeRefusedError)
        assert REMOVED in again.failure.message
        numbers = dict(fleet.node(others[0]).metadata.members)
        fleet.kill(name)
        fleet.wipe(name)
        fleet.start(name)
        await fleet.all_alive()
        await fleet.until(lambda: name in fleet.node(others[0]).metadata.members)
        number = fleet.node(others[0]).metadata.members[name]
        assert number > max(numbers.values()), "numbers are not given twice"
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5)

    run_control(scenario, seed=24, timers=FAST)


def test_a_dead_node_is_replaced() -> None:
    """Another one joins and votes; the dead one is removed without being asked."""

    async def scenario(fleet: ControlFleet) -> None:
        await at_work(fleet)
        fleet.kill("c")
        await fleet.all_alive(["a", "b"])
        await join(fleet, "d")
        await fleet.propose("a", RetireNode(node="c", move_replicas=True))
        await fleet.until(lambda: roles(fleet) == dict.fromkeys(("a", "b", "d"), "voter"))
        await fleet.until(lambda: "c" not in fleet.node("a").metadata.image.nodes)
        returned = fleet.start("c")
        await fleet.until(lambda: returned.failure is not None)

        assert REMOVED in str(returned.failure)
        await fleet.all_alive(["a", "b", "d"])

    run_control(scenario, seed=25, timers=FAST)


def test_a_removal_waits_for_replicas_that_are_down() -> None:
    """While one node is dead, what the other holds has no place where it would be whole."""

    async def scenario(fleet: ControlFleet) -> None:
        await at_work(fleet)
        await join(fleet, "d")
        fleet.kill("c")
        await fleet.all_alive(["a", "b", "d"])
        [controller] = fleet.controllers()
        other = "b" if controller == "a" else "a"
        await fleet.propose("d", RetireNode(node=other, move_replicas=True))
        await asyncio.sleep(20)
        assert roles(fleet)[other] == "voter"
        fleet.start("c")
        left = dict.fromkeys((controller, "c", "d"), "voter")
        await fleet.until(lambda: roles(fleet) == left)

        await fleet.propose("d", CreateTopic(name="orders", partitions=1))

    run_control(scenario, seed=26, timers=FAST)


def test_a_node_with_replicas_is_not_removed_unless_they_may_move() -> None:
    """The reason says how many there are, and that another node has to join first."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        with pytest.raises(OperationActiveError, match="replicas of 59 partitions"):
            await fleet.propose("a", RetireNode(node="c"))
        with pytest.raises(OperationActiveError, match="let another node join first"):
            await fleet.propose("a", RetireNode(node="c", move_replicas=True))
        await join(fleet, "d")
        await fleet.propose("a", RetireNode(node="c", move_replicas=True))
        image = fleet.node("a").metadata.image
        await fleet.until(lambda: any("d" in one for one in image.replica_sets))
        await fleet.propose("b", RetireNode(node="c", is_cancelled=True))

        assert not image.nodes[NodeId("c")].is_retiring

    run_control(scenario, seed=27, timers=FAST)


def test_two_nodes_are_not_removed_where_one_is_left_to_take_their_replicas() -> None:
    """Together they leave fewer nodes than a partition has replicas."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        await join(fleet, "d")
        await fleet.propose("a", RetireNode(node="c", move_replicas=True))
        with pytest.raises(OperationActiveError, match="let another node join first"):
            await fleet.propose("a", RetireNode(node="b", move_replicas=True))

    run_control(scenario, seed=28, timers=FAST)


def test_a_node_joins_while_removals_wait_for_it() -> None:
    """Two are being removed and a third is dead: what has no place yet holds nothing up."""

    async def scenario(fleet: ControlFleet) -> None:
        await at_work(fleet)
        await join(fleet, "d")
        await join(fleet, "e")
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5)
        fleet.kill("e")
        await fleet.all_alive(["a", "b", "c", "d"])
        for name in ("a", "b"):
            await fleet.propose("c", RetireNode(node=name, move_replicas=True))
        await join(fleet, "f", ("c", "d"))
        await fleet.until(lambda: {"a", "b"}.isdisjoint(roles(fleet)) and roles(fleet) != {})

    run_control(scenario, seed=29, timers=FAST)


def test_a_node_that_joins_may_crash_at_any_moment() -> None:
    """Killed again and again while it joins, it is one member in the end."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        fleet.add("d")
        config = fleet.config("d", ["a", "d"])
        for number in range(12):
            fleet.start("d", config=config)
            await asyncio.sleep(fleet.random.uniform(0, 0.4))
            (fleet.kill if number % 2 else fleet.cut_power)("d")
        fleet.start("d", config=config)
        await fleet.all_alive(seconds=60)
        await fleet.agree()

        assert roles(fleet)["d"] == "learner"
        assert sorted(fleet.node("a").metadata.members.values()) == [1, 2, 3, 4]

    for seed in range(30, 30 + SEEDS):
        run_control(scenario, seed=seed, timers=FAST)


def test_three_nodes_become_five_and_three_again_under_load() -> None:
    """Hard case 24: changes are proposed all the time on all nodes; none is lost or done twice."""

    async def scenario(fleet: ControlFleet) -> None:
        await at_work(fleet)
        blocks: list[int] = []
        is_over = False

        async def load() -> None:
            while not is_over:
                await asyncio.sleep(0.1)
                live = [one.node for one in fleet.running if one.is_live]
                # What is asked on a node that is killed has no answer.
                with contextlib.suppress(TimeoutError, GoQueueError, IndexError):
                    async with asyncio.timeout(5):
                        name = fleet.random.choice(live)
                        reply = await fleet.propose(name, AllocateIds(kind="producer"))
                    assert isinstance(reply, IdsReply)
                    blocks.append(reply.first)

        loading = asyncio.get_running_loop().create_task(load())
        for name in ("d", "e"):
            await join(fleet, name)
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5)
        for name in ("a", "b"):
            await fleet.propose("c", RetireNode(node=name, move_replicas=True))
            await fleet.until(lambda name=name: name not in roles(fleet) and roles(fleet) != {})  # type: ignore[misc]
            fleet.kill(name)
        await fleet.until(lambda: roles(fleet) == dict.fromkeys(("c", "d", "e"), "voter"))
        is_over = True
        await loading

        assert len(blocks) > 20
        assert len(set(blocks)) == len(blocks)
        await fleet.all_alive(["c", "d", "e"])
        await fleet.agree()

    for seed in range(40, 40 + SEEDS):
        run_control(scenario, seed=seed, timers=FAST)


def test_a_node_that_joined_and_lost_its_disk_is_taken_in_again() -> None:
    """Hard case 8: it keeps its number, and votes again when it has everything."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        await join(fleet, "d")
        await join(fleet, "e")
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5)
        numbers = dict(fleet.node("a").metadata.members)
        fleet.kill("e")
        await fleet.all_alive(["a", "b", "c", "d"])
        fleet.wipe("e")
        fleet.start("e", config=fleet.config("e", ["b", "e"]))
        await fleet.all_alive(seconds=40)
        await fleet.until(lambda: list(roles(fleet).values()) == ["voter"] * 5)

        assert fleet.node("a").metadata.members == numbers

    run_control(scenario, seed=28, timers=FAST)


def test_two_of_three_disks_are_lost_and_no_second_cluster_is_founded() -> None:
    """Hard case 8: nothing is decided, by the one that is left or by the two emptied ones."""

    async def scenario(fleet: ControlFleet) -> None:
        await founded(fleet)
        cluster = fleet.node("a").identity.cluster_id
        for name in ("b", "c"):
            fleet.kill(name)
            fleet.wipe(name)
            fleet.start(name)
        await asyncio.sleep(60)

        assert fleet.controllers() == []
        assert not any(one.is_live for one in fleet.running)
        assert {fleet.node(name).identity.cluster_id for name in "abc"} == {cluster, ""}

    run_control(scenario, seed=29, timers=FAST)
