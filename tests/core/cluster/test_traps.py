"""Mistakes that other clusters have made, each by the number of its trap."""

import typing

import msgspec
import pytest

from goqueue.base.errors import InvalidRequestError, LeaderNotAvailableError
from goqueue.core.cluster import commands
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.states import MoveState
from goqueue.core.cluster.verbs import decide
from tests.core.cluster.world import World, founded, state_of


def test_c1_an_empty_cluster_makes_nothing_and_can_be_waited_for() -> None:
    """C1: no topic is made for show; until there is a cluster and a node, asking again may help."""
    world = World()
    create = commands.CreateTopic(name="orders", partitions=1)
    for command in (create, commands.MendLeaders(), commands.FenceNode(node="a", epoch=1)):
        with pytest.raises(LeaderNotAvailableError) as early:
            world.propose(command)
        assert early.value.retryable
    world.propose(commands.FoundCluster(cluster_id="blue"))
    world.propose(commands.FoundCluster(cluster_id="blue"))
    with pytest.raises(LeaderNotAvailableError):
        world.propose(create)
    world.start("a")
    world.propose(create)

    assert [topic.name for topic in world.image.topics.values()] == ["orders"]


def test_c4_a_dead_node_is_in_no_set() -> None:
    """C4: after a failover every set in sync is without it, also where it only followed."""
    world = founded("a", "b", "c")
    world.create("orders", 30)
    world.fence("b")

    for record in world.image.topic("orders").partitions:
        assert "b" not in record.isr_ids
        assert len(record.isr_ids) == 2
        assert record.leader_id in record.isr_ids


def test_c5_what_is_needed_is_not_counted_over_those_that_seem_alive() -> None:
    """C5: a node that is cut off sees no other: it must not make do with less for that."""
    world = founded("a", "b", "c")
    world.fence("b")
    world.fence("c")
    world.create("orders")
    replication = world.image.topic("orders").replication

    assert (replication.replication_factor, replication.min_insync_replicas) == (3, 2)
    assert world.at("orders").isr_ids == ("a",)


def test_c7_sets_change_only_by_proposals_and_deleting_is_for_all() -> None:
    """C7: every change has the next epoch; a deleted topic leaves nothing in the metadata."""
    world = founded("a", "b", "c")
    world.create("orders", 2)
    leader = world.at("orders").leader_id
    assert leader is not None
    world.set_isr("orders", leader)
    assert world.at("orders").partition_epoch == 2
    world.propose(commands.DeleteTopic(name="orders"))

    assert not world.image.topics
    assert not world.image.replica_sets
    assert len(world.image.catalog) == 0
    assert world.image.version == len(world.log)


def test_c9_state_cannot_be_posted() -> None:
    """C9: the union of commands is closed: what names a state, a vote or an image is refused."""
    names = {one.__name__ for one in typing.get_args(commands.Command)}
    assert not [name for name in names if "State" in name or "Metadata" in name]
    world = founded("a")
    before = state_of(world.image)
    for forged in (
        {"metadata": {"version": 99}},
        [["founded", "mine", 1, 0]],
        [["parts", [[1, 0, 1, 0, 9, 9, 0, -1]]]],
        [["counters", 99, 1, 1, 1, 0, [], []]],
        [["fenced", "a", 1]],
    ):
        with pytest.raises(InvalidRequestError):
            commands.decode_proposal(msgspec.msgpack.encode(forged))

    assert state_of(world.image) == before


def test_c9_another_cluster_cannot_be_founded_over_this_one() -> None:
    """Founding happens once."""
    world = founded("a")
    with pytest.raises(Exception, match="blue"):
        world.propose(commands.FoundCluster(cluster_id="green"))


def test_c10_a_replica_is_there_when_its_leader_says_so() -> None:
    """C10: not when it says so: only its leader brings it into sync, and that ends a move."""
    world = founded("a", "b", "c")
    world.assign("orders", "a", "b")
    world.move(commands.PartMove(topic="orders", partition=0, new=["a", "c"]))
    asked = world.part("orders", "a", "b", "c")

    assert world.alter(asked, node="c") == ["not_leader"]
    move = world.image.moves_of(1)[0]
    assert move.state is MoveState.CATCHING_UP
    assert world.alter(asked, node="a") == ["ok"]
    assert world.image.moves_of(1)[0].state is MoveState.COMPLETED


def test_a_decision_depends_on_nothing_but_image_and_command() -> None:
    """Two images of one log decide alike, to the byte."""
    one, other = founded("c", "a", "b"), founded("c", "a", "b")
    for world in (one, other):
        world.create("orders", 7)
    proposal = commands.Proposal(command=commands.FenceNode(node="a", epoch=one.epoch("a")))

    assert state_of(one.image) == state_of(other.image)
    assert decide(one.image, proposal, now_ms=1) == decide(other.image, proposal, now_ms=1)
    assert (
        repr(ClusterImage())
        == "<ClusterImage not founded version 0: 0 nodes, 0 topics, 0 partitions>"
    )
