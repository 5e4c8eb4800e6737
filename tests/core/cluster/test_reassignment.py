"""How replicas move, and how moves are paused, cancelled and outlived."""

import pytest

from goqueue.base.errors import (
    InvalidRequestError,
    OperationActiveError,
    ReassignmentNotFoundError,
)
from goqueue.base.ids import NodeId, TopicName
from goqueue.core.cluster import commands
from goqueue.core.cluster.rebalance import plan
from goqueue.core.cluster.replies import Done, ReassignmentReply
from goqueue.core.cluster.states import MoveState, ReassignmentState
from tests.core.cluster.world import World, founded, rebuilt, state_of


def to(*new: str, topic: str = "orders", partition: int = 0) -> commands.PartMove:
    return commands.PartMove(topic=topic, partition=partition, new=list(new))


def four() -> World:
    world = founded("a", "b", "c", "d")
    world.assign("orders", "a", "b", "c")
    return world


def state(world: World, name: str) -> ReassignmentState:
    return world.image.reassignment(name).state


def moves(world: World, name: str) -> list[MoveState]:
    number = world.image.reassignment(name).number
    return [move.state for move in world.image.moves_of(number)]


def test_a_partition_grows_catches_up_and_shrinks() -> None:
    """The event that brings the last new replica into sync takes the old ones away."""
    world = four()
    name = world.move(to("d", "b", "c"))

    assert name == "reassign-1"
    assert world.at("orders").replicas == ("a", "b", "c", "d")
    assert world.at("orders").isr_ids == ("a", "b", "c")
    assert moves(world, name) == [MoveState.CATCHING_UP]
    before = len(world.log)
    assert world.set_isr("orders", "a", "b", "c", "d") == "ok"
    assert len(world.log) == before + 2, "the step and the end of the reassignment"
    record = world.at("orders")
    assert record.replicas == ("d", "b", "c")
    assert record.isr_ids == ("d", "b", "c")
    assert (record.leader_id, record.leader_epoch) == ("d", 2)
    assert not record.is_moving
    assert state(world, name) is ReassignmentState.COMPLETED


def test_the_leader_stays_if_it_can() -> None:
    """Clients see at most one change of the leader."""
    world = four()
    world.move(to("a", "d", "c"))
    world.set_isr("orders", "a", "b", "c", "d")

    assert world.at("orders").replicas == ("a", "d", "c")
    assert (world.at("orders").leader_id, world.at("orders").leader_epoch) == ("a", 1)


def test_replicas_that_are_all_in_sync_need_no_copying() -> None:
    """Another order, or fewer, is done at once; the setting follows the partitions."""
    world = four()
    name = world.move(to("c", "b"))

    assert state(world, name) is ReassignmentState.COMPLETED
    assert world.at("orders").replicas == ("c", "b")
    assert world.at("orders").leader_id == "c"
    assert world.image.topic("orders").replication.replication_factor == 2


def test_only_some_move_at_once() -> None:
    """The others wait for their turn, also if the controller is another one by then."""
    world = founded("a", "b", "c", "d")
    for number in range(3):
        world.assign(f"t{number}", "a", "b", "c")
    parts = [to("a", "b", "d", topic=f"t{number}") for number in range(3)]
    name = world.move(*parts, moves_per_node=1)
    assert moves(world, name) == [MoveState.CATCHING_UP, MoveState.PENDING, MoveState.PENDING]
    world.image = rebuilt(state_of(world.image))
    assert world.propose(commands.AdvanceMoves(moves_per_node=1)) == Done(changed=0)
    world.set_isr("t0", "a", "b", "c", "d")
    assert world.propose(commands.AdvanceMoves(moves_per_node=1)) == Done(changed=1)

    assert moves(world, name) == [MoveState.COMPLETED, MoveState.CATCHING_UP, MoveState.PENDING]


def test_a_paused_reassignment_begins_nothing() -> None:
    """Until it is resumed; both may be repeated."""
    world = founded("a", "b", "c")
    for number in range(2):
        world.assign(f"t{number}", "a", "b")
    name = world.move(to("a", "c", topic="t0"), to("a", "c", topic="t1"), moves_per_node=1)
    for _ in range(2):
        world.propose(commands.PauseReassignment(id=name))
    world.set_isr("t0", "a", "b", "c")
    world.propose(commands.AdvanceMoves())
    assert moves(world, name) == [MoveState.COMPLETED, MoveState.PENDING]
    for _ in range(2):
        world.propose(commands.ResumeReassignment(id=name))
    world.propose(commands.AdvanceMoves())

    assert moves(world, name) == [MoveState.COMPLETED, MoveState.CATCHING_UP]
    world.set_isr("t1", "a", "b", "c")
    with pytest.raises(InvalidRequestError, match="completed"):
        world.propose(commands.PauseReassignment(id=name))


def test_cancelling_gives_the_old_replicas_back() -> None:
    """What is finished stays finished."""
    world = founded("a", "b", "c")
    for number in range(3):
        world.assign(f"t{number}", "a", "b")
    parts = [to("c", "b", topic=f"t{number}") for number in range(3)]
    name = world.move(*parts, moves_per_node=2)
    world.set_isr("t0", "a", "b", "c")
    reply = world.propose(commands.CancelReassignment(id=name))

    assert reply == ReassignmentReply(id=name, moves=0)
    assert [world.at(f"t{number}").replicas for number in range(3)] == [
        ("c", "b"),
        ("a", "b"),
        ("a", "b"),
    ]
    assert moves(world, name) == [MoveState.COMPLETED, MoveState.CANCELED, MoveState.CANCELED]
    assert state(world, name) is ReassignmentState.COMPLETED
    assert world.propose(commands.CancelReassignment(id=name)) == reply


def test_cancelling_never_loses_what_only_new_replicas_have() -> None:
    """The old replicas are gone or behind: going back would lose committed messages."""
    world = founded("a", "b", "c", "d")
    world.assign("orders", "a", "b", min_insync_replicas=1)
    name = world.move(to("c", "d"))
    world.set_isr("orders", "a", "c")
    world.fence("a")
    assert world.at("orders").leader_id == "c"
    reply = world.propose(commands.CancelReassignment(id=name))

    assert reply == ReassignmentReply(id=name, moves=1, refused=1)
    assert world.at("orders").replicas == ("a", "b", "c", "d")
    world.set_isr("orders", "c", "d")
    assert world.at("orders").replicas == ("c", "d")


def test_a_move_that_takes_too_long_is_taken_back() -> None:
    """It is failed, and so is the reassignment."""
    world = four()
    name = world.move(to("d", "b", "c"), timeout_ms=1_000)
    world.now_ms += 1_001
    world.propose(commands.AdvanceMoves())

    assert moves(world, name) == [MoveState.FAILED]
    assert state(world, name) is ReassignmentState.FAILED
    assert world.at("orders").replicas == ("a", "b", "c")


def test_a_topic_is_deleted_while_it_moves() -> None:
    """Its moves end with it, those of others go on."""
    world = four()
    world.assign("other", "a", "b")
    name = world.move(to("d", "b", "c"), to("a", "d", topic="other"))
    world.propose(commands.DeleteTopic(name="orders"))

    assert moves(world, name) == [MoveState.CANCELED, MoveState.CATCHING_UP]
    world.set_isr("other", "a", "b", "d")
    assert state(world, name) is ReassignmentState.COMPLETED


def test_a_topic_is_scaled_while_it_moves() -> None:
    """New partitions are placed as if nothing moved."""
    world = four()
    world.move(to("d", "b", "c"))
    world.propose(commands.AddPartitions(name="orders", count=3))
    world.set_isr("orders", "a", "b", "c", "d")

    assert len(world.image.topic("orders").partitions) == 3
    assert world.at("orders").replicas == ("d", "b", "c")


def test_a_node_dies_while_replicas_move() -> None:
    """A new replica that died comes back and arrives; an old leader is replaced meanwhile."""
    world = four()
    name = world.move(to("d", "b", "c"))
    world.fence("d")
    world.fence("a")
    assert world.at("orders").leader_id == "b"
    world.start("d")
    world.set_isr("orders", "b", "c", "d")

    assert state(world, name) is ReassignmentState.COMPLETED
    assert world.at("orders").replicas == ("d", "b", "c")
    assert world.at("orders").leader_id == "b"


def test_what_cannot_be_moved_is_refused() -> None:
    """Unknown nodes, doubles, a partition that moves, too few replicas, another old set."""
    world = four()
    for part in (
        to("z"),
        to("a", "a"),
        to("a"),
        to("a", "b", partition=7),
        commands.PartMove(topic="orders", partition=0, old=["a"], new=["a", "d"]),
        to("a", topic="none"),
    ):
        with pytest.raises(Exception, match=r"node|replicas|partition|topic"):
            world.move(part)
    world.move(to("d", "b", "c"))
    with pytest.raises(OperationActiveError):
        world.move(to("a", "b", "d"))
    world.assign("wide", "a", "b", "c")
    world.move(to("a", "d", topic="wide"))
    with pytest.raises(OperationActiveError, match="moving to 2"):
        world.configure("wide", min_insync_replicas=3)
    for name in ("reassign-7", "7x", "reassign-", "reassign-" + "9" * 50):
        with pytest.raises(ReassignmentNotFoundError):
            world.propose(commands.CancelReassignment(id=name))


def test_a_plan_evens_out_a_new_node() -> None:
    """It is shown first: moves, bytes, time, and what is gained; then it is proposed."""
    world = founded("a", "b", "c")
    world.create("orders", 30)
    world.start("d")
    sizes = {(TopicName("orders"), number): 1_000_000 for number in range(30)}
    planned = plan(world.image, sizes=sizes, throttle_bytes=10_000_000)

    assert planned.before.replicas == 30
    assert planned.after.replicas <= 1
    assert planned.copied_bytes == 1_000_000 * len(planned.moves)
    assert planned.duration_ms == 100 * len(planned.moves)
    assert 20 <= len(planned.moves) <= 23
    assert planned.is_whole
    name = world.move(*(move.command() for move in planned.moves), moves_per_node=100)
    for move in planned.moves:
        world.set_isr("orders", "a", "b", "c", "d", partition=move.partition)
    assert state(world, name) is ReassignmentState.COMPLETED
    assert not plan(world.image, sizes={}).moves


def test_a_plan_empties_a_node() -> None:
    """So that it can be forgotten."""
    world = founded("a", "b", "c", "d")
    world.create("orders", 8)
    planned = plan(world.image, sizes={}, drained=[NodeId("b")])

    assert all("b" in move.old for move in planned.moves)
    assert not any("b" in move.new for move in planned.moves)
    assert len(planned.moves) == sum(
        "b" in record.replicas for record in world.image.topic("orders").partitions
    )
    assert len(plan(world.image, sizes={}, drained=[NodeId("b")], moves_max=2).moves) == 2


def test_a_move_arrives_where_an_election_brought_the_last_one_into_sync() -> None:
    """No leader asks for anything then: the controller sees it."""
    world = founded("a", "b")
    world.assign("orders", "a", "b", min_insync_replicas=1)
    world.fence("a")
    world.fence("b")
    name = world.move(to("b"))
    assert moves(world, name) == [MoveState.CATCHING_UP]
    world.unfence("b")
    assert world.at("orders").isr_ids == ("b",)
    world.propose(commands.AdvanceMoves())

    assert state(world, name) is ReassignmentState.COMPLETED
    assert world.at("orders").replicas == ("b",)
