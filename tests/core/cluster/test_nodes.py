"""How nodes come, are fenced, stop and go."""

import pytest

from goqueue.base.errors import (
    NodeFencedError,
    NodeNotFoundError,
    NodeRefusedError,
    OperationActiveError,
    StaleEpochError,
)
from goqueue.core.cluster import commands
from goqueue.core.cluster.replies import NodeReply
from goqueue.core.cluster.states import NodeStatus
from tests.core.cluster.world import CLUSTER, founded, leaders_of


def test_a_node_is_fenced_until_it_is_heard_of() -> None:
    """Registering is not being alive."""
    world = founded("a")
    world.register("b")

    assert world.image.node("b").status is NodeStatus.FENCED
    world.unfence("b")
    assert world.image.node("b").status is NodeStatus.ALIVE


def test_a_node_of_another_cluster_is_refused() -> None:
    """Its messages are not ours."""
    world = founded("a")
    with pytest.raises(NodeRefusedError, match="green"):
        world.propose(
            commands.RegisterNode(cluster_id="green", node="b", directory="d", incarnation=1)
        )

    assert set(world.image.nodes) == {"a"}


def test_two_disks_cannot_have_one_name_while_the_first_is_alive() -> None:
    """Two processes with one node id: the second is refused, the first is untouched."""
    world = founded("a", "b")
    epoch = world.epoch("b")
    with pytest.raises(NodeRefusedError, match="another data directory"):
        world.register("b", directory="second")

    assert world.epoch("b") == epoch
    world.fence("b")
    world.start("b", directory="second")
    assert world.image.node("b").directory == "second"


def test_one_disk_cannot_have_two_names() -> None:
    """A copied data directory is recognised."""
    world = founded("a")
    with pytest.raises(NodeRefusedError, match="copied"):
        world.register("b", directory="a-disk")


def test_an_old_copy_of_a_disk_is_refused() -> None:
    """A directory knows how often it was started; a restored backup knows an earlier number."""
    world = founded("a")
    world.start("a")
    world.incarnations["a-disk"] = 0
    with pytest.raises(NodeRefusedError, match="old copy"):
        world.register("a")


def test_a_repeated_registration_changes_nothing() -> None:
    """The answer was lost: the same process asks again and gets the same epoch."""
    world = founded("a")
    first = world.register("b")
    world.incarnations["b-disk"] -= 1
    before = len(world.log)

    assert world.register("b") == first
    assert len(world.log) == before


def test_two_processes_of_one_directory_are_refused() -> None:
    """The same start of the same directory cannot listen at two addresses."""
    world = founded("a")
    with pytest.raises(NodeRefusedError, match="two processes"):
        world.propose(
            commands.RegisterNode(
                cluster_id=CLUSTER, node="a", directory="a-disk", incarnation=1, native="x:1"
            )
        )


def test_a_restart_gives_a_new_epoch_that_fences_the_old_process() -> None:
    """What the earlier process still asks for is refused."""
    world = founded("a", "b")
    old = world.epoch("b")
    world.start("b")

    assert world.epoch("b") > old
    with pytest.raises(StaleEpochError):
        world.propose(commands.FenceNode(node="b", epoch=old))
    with pytest.raises(StaleEpochError):
        world.propose(commands.AlterPartitions(node="b", epoch=old, parts=[]))


def test_a_restarted_node_leads_nothing_until_it_is_heard_of() -> None:
    """Others lead meanwhile; with fsync it has lost nothing and comes back by catching up."""
    world = founded("a", "b", "c")
    world.assign("orders", "b", "a", "c")
    world.register("b")

    assert world.at("orders").leader_id == "a"
    assert world.at("orders").isr_ids == ("a", "c")
    assert world.at("orders").leader_epoch == 2


def test_the_only_replica_leads_again_after_a_crash() -> None:
    """Its acknowledged messages are on its disk."""
    world = founded("a", "b")
    world.assign("orders", "b")
    world.fence("b")
    assert world.at("orders").leader_id is None
    assert world.at("orders").elr_ids == ("b",)

    world.start("b")

    assert world.at("orders").leader_id == "b"
    assert world.at("orders").elr == 0
    assert world.image.unclean_elections == 0


def test_an_empty_disk_under_an_old_name_is_out_of_everything() -> None:
    """Rule 10: it has nothing, so it is neither in sync nor eligible nor the last leader."""
    world = founded("a", "b", "c")
    world.assign("single", "b")
    world.assign("pair", "b", "c")
    world.fence("b")
    world.start("b", directory="new-disk")

    assert world.at("pair").leader_id == "c"
    assert world.at("pair").isr_ids == ("c",)
    assert world.at("pair").elr == 0
    lost = world.at("single")
    assert (lost.leader_id, lost.isr, lost.elr, lost.last) == (None, 0, 0, -1)


def test_an_unclean_stop_counts_where_acks_do_not_wait_for_the_disk() -> None:
    """A topic with durability os: who comes back from a crash is not eligible (KIP-966)."""
    world = founded("a", "b", "c")
    world.assign("sync", "a", "b")
    world.assign("fast", "a", "b", durability="os")
    for node in ("a", "b"):
        world.fence(node)
    assert world.at("fast").elr_ids == ("b",)

    world.start("b")

    assert world.at("sync").leader_id == "b"
    assert world.at("fast").leader_id == "b"
    assert world.image.unclean_elections == 1, "the last leader leads, and that is counted"


def test_a_clean_stop_loses_nothing_whatever_the_durability() -> None:
    """Everything was synced before it stopped."""
    world = founded("a", "b")
    world.assign("fast", "b", durability="os")
    world.fence("b")
    world.start("b", clean=True)

    assert world.at("fast").leader_id == "b"
    assert world.image.unclean_elections == 0


def test_leaders_move_first_when_a_node_leaves() -> None:
    """Then it leaves the sets in sync, then it goes."""
    world = founded("a", "b", "c")
    world.create("orders", 9)
    begun = world.propose(commands.BeginLeave(node="b", epoch=world.epoch("b")))

    assert isinstance(begun, NodeReply)
    assert begun.status is NodeStatus.LEAVING
    assert "b" not in leaders_of(world, "orders")
    assert all("b" in record.isr_ids for record in world.image.topic("orders").partitions)

    gone = world.propose(commands.FinishLeave(node="b", epoch=world.epoch("b")))

    assert isinstance(gone, NodeReply)
    assert gone.status is NodeStatus.FENCED
    assert not any("b" in record.isr_ids for record in world.image.topic("orders").partitions)
    assert {record.leader_epoch for record in world.image.topic("orders").partitions} == {1, 2}


def test_a_leaving_node_keeps_what_no_other_can_lead() -> None:
    """It says how many partitions these are, and they wait for it when it is gone."""
    world = founded("a", "b")
    world.assign("only", "b")
    begun = world.propose(commands.BeginLeave(node="b", epoch=world.epoch("b")))

    assert isinstance(begun, NodeReply)
    assert begun.leads == 1
    assert world.at("only").leader_id == "b"
    world.propose(commands.FinishLeave(node="b", epoch=world.epoch("b")))
    assert world.at("only").elr_ids == ("b",)


def test_a_leaving_node_gets_nothing_new() -> None:
    """Neither leaderships nor a place among those in sync."""
    world = founded("a", "b", "c")
    world.assign("orders", "a", "b", "c")
    world.set_isr("orders", "a", "c")
    world.propose(commands.BeginLeave(node="b", epoch=world.epoch("b")))

    assert world.set_isr("orders", "a", "b", "c") == "node_fenced"
    world.create("later", 3)
    assert "b" not in leaders_of(world, "later")
    with pytest.raises(NodeFencedError):
        world.unfence("b")


def test_finishing_hands_over_what_became_possible_meanwhile() -> None:
    """A follower came back into sync after the leave began: it takes over before the node goes."""
    world = founded("a", "b")
    world.assign("orders", "b", "a")
    world.set_isr("orders", "b")
    leave = {"node": "b", "epoch": world.epoch("b")}
    world.propose(commands.BeginLeave(node="b", epoch=world.epoch("b")))
    world.set_isr("orders", "b", "a")
    first = world.propose(commands.FinishLeave(node="b", epoch=world.epoch("b")))

    assert isinstance(first, NodeReply)
    assert first.status is NodeStatus.LEAVING
    assert world.at("orders").leader_id == "a"
    world.propose(commands.FinishLeave(node=str(leave["node"]), epoch=world.epoch("b")))
    assert world.at("orders").isr_ids == ("a",)


def test_a_node_must_begin_to_leave_before_it_is_let_go() -> None:
    """The steps have an order."""
    world = founded("a")
    with pytest.raises(OperationActiveError):
        world.propose(commands.FinishLeave(node="a", epoch=world.epoch("a")))


def test_a_node_is_forgotten_only_when_it_holds_nothing() -> None:
    """A replica on a forgotten node would be no replica."""
    world = founded("a", "b")
    world.assign("orders", "a", "b")
    with pytest.raises(OperationActiveError, match="stop it"):
        world.propose(commands.ForgetNode(node="b"))
    world.fence("b")
    with pytest.raises(OperationActiveError, match="1 partitions"):
        world.propose(commands.ForgetNode(node="b"))
    world.propose(commands.DeleteTopic(name="orders"))
    world.propose(commands.ForgetNode(node="b"))

    assert set(world.image.nodes) == {"a"}
    with pytest.raises(NodeNotFoundError):
        world.fence("b")


def test_the_feature_level_waits_for_every_node() -> None:
    """Also for those that are down: they will read the events later."""
    world = founded("a", "b")
    world.fence("b")
    with pytest.raises(Exception, match="a, b must be newer"):
        world.propose(commands.RaiseFeatureLevel(feature_level=2))
    for node in ("a", "b"):
        world.incarnations[f"{node}-disk"] += 1
        world.propose(
            commands.RegisterNode(
                cluster_id=CLUSTER,
                node=node,
                directory=f"{node}-disk",
                incarnation=world.incarnations[f"{node}-disk"],
                feature_level=2,
            )
        )
    world.propose(commands.RaiseFeatureLevel(feature_level=2))

    assert world.image.feature_level == 2
    with pytest.raises(NodeRefusedError, match="level"):
        world.register("c")
