"""How leaders and sets of replicas in sync change."""

import pytest

from goqueue.base.errors import InvalidRequestError, NodeFencedError, PartitionNotFoundError
from goqueue.core.cluster import commands
from goqueue.core.cluster.replies import Done, PartsReply
from tests.core.cluster.world import World, founded, leaders_of


def three() -> World:
    world = founded("a", "b", "c")
    world.assign("orders", "a", "b", "c")
    return world


def test_the_first_in_sync_leads_when_the_leader_is_dead() -> None:
    """In the order of the replicas; the epoch says that the leader is another one."""
    world = three()
    world.set_isr("orders", "a", "c")
    world.fence("a")

    assert world.at("orders").leader_id == "c"
    assert world.at("orders").leader_epoch == 2
    assert world.at("orders").isr_ids == ("c",)


def test_a_follower_that_dies_changes_no_leader() -> None:
    """Clients of the leader notice nothing."""
    world = three()
    world.fence("b")

    assert world.at("orders").leader_id == "a"
    assert world.at("orders").leader_epoch == 1
    assert world.at("orders").partition_epoch == 2


def test_a_leader_shrinks_and_grows_its_set() -> None:
    """Each change has the next epoch of the partition; the leader's stays."""
    world = three()

    assert world.set_isr("orders", "a") == "ok"
    assert world.at("orders").isr_ids == ("a",)
    assert world.at("orders").elr_ids == ("b", "c"), "with one of two needed, nothing is committed"
    assert world.set_isr("orders", "a", "b") == "ok"
    assert world.at("orders").elr == 0
    assert world.at("orders").partition_epoch == 3
    assert world.at("orders").leader_epoch == 1


def test_a_repeated_change_is_answered_as_the_first() -> None:
    """The answer was lost; the epoch of the partition has moved on by the change itself."""
    world = three()
    part = world.part("orders", "a", "b")
    assert world.alter(part, node="a") == ["ok"]
    before = len(world.log)

    assert world.alter(part, node="a") == ["ok"]
    assert len(world.log) == before


def test_the_same_replicas_in_sync_rule_out_what_was_proposed_before() -> None:
    """A leader whose proposal was refused counts its members until the partition has changed."""
    world = three()
    world.set_isr("orders", "a", "b")
    world.fence("c")
    refused = world.part("orders", "a", "b", "c")
    assert world.alter(refused, node="a") == ["node_fenced"]
    same = world.part("orders", "a", "b")
    before = world.at("orders")
    assert world.alter(same, node="a") == ["ok"]
    after = world.at("orders")
    world.unfence("c")

    assert (after.isr_ids, after.leader_epoch) == (before.isr_ids, before.leader_epoch)
    assert after.partition_epoch == before.partition_epoch + 1
    assert world.alter(refused, node="a") == ["stale_epoch"]
    assert world.alter(same, node="a") == ["ok"], "a repeated request"
    assert world.at("orders") == after


def test_what_is_out_of_date_changes_nothing() -> None:
    """Of an earlier leader, epoch of the leader, of the partition or of a member."""
    world = three()
    stale = world.part("orders", "a", "b")
    world.set_isr("orders", "a", "c")
    assert world.alter(stale, node="a") == ["stale_epoch"]
    assert world.alter(world.part("orders", "b", "c"), node="b") == ["not_leader"]
    earlier = world.part("orders", "a", "b", "c")
    world.start("b")
    assert world.alter(earlier, node="a") == ["stale_epoch"], "b has another life"
    old = world.part("orders", "a", "b", "c")
    world.fence("c")
    world.fence("a")
    world.start("a")

    assert world.at("orders").leader_id == "a"
    assert world.alter(old, node="a") == ["stale_epoch"], "it leads in another epoch"


def test_members_must_be_alive_replicas() -> None:
    """A fenced node, a stranger, or a double."""
    world = three()
    world.start("d")
    world.fence("b")

    assert world.set_isr("orders", "a", "b", "c") == "node_fenced"
    assert world.set_isr("orders", "a", "d") == "invalid_request"
    assert world.set_isr("orders", "a", "a", "c") == "ok", "it is the set that there is"
    assert world.set_isr("orders", "a", "a") == "invalid_request"
    assert world.set_isr("orders") == "invalid_request"


def test_a_fenced_leader_asks_in_vain() -> None:
    """An isolated leader cannot shrink its set, so it acknowledges nothing (rule 3)."""
    world = three()
    part = world.part("orders", "a")
    epoch = world.epoch("a")
    world.fence("a")
    with pytest.raises(NodeFencedError):
        world.propose(commands.AlterPartitions(node="a", epoch=epoch, parts=[part]))


def test_one_refused_part_stops_no_other() -> None:
    """Each partition has its own outcome."""
    world = three()
    world.create("more", 2)
    leader = world.at("more").leader_id
    assert leader is not None
    missing = commands.PartIsr(topic_id=99, partition=0, leader_epoch=1, partition_epoch=1, isr=[])
    outcomes = world.alter(missing, world.part("more", leader), node=leader)

    assert outcomes == ["topic_not_found", "ok"]
    part = world.part("more", leader)
    with pytest.raises(InvalidRequestError, match="once"):
        world.alter(part, part, node=leader)


def test_without_any_in_sync_the_last_members_are_waited_for() -> None:
    """A replica that left earlier may lack messages and does not lead, though it is alive."""
    world = three()
    world.set_isr("orders", "a", "c")
    world.fence("c")
    world.fence("a")
    assert world.at("orders").leader_id is None, "b is alive, but lacks what a and c committed"
    world.start("c")

    assert world.at("orders").leader_id == "c", "nothing was committed without it"
    assert world.image.unclean_elections == 0


def test_an_eligible_replica_that_is_alive_leads_at_once() -> None:
    """It left when too few were in sync for anything to be committed since."""
    world = three()
    world.set_isr("orders", "a")
    assert world.at("orders").elr_ids == ("b", "c")
    world.fence("a")

    assert world.at("orders").leader_id == "b"
    assert world.at("orders").elr_ids == ("a", "c")
    assert world.image.unclean_elections == 0


def test_an_unclean_election_is_allowed_by_the_topic_and_counted() -> None:
    """Off by default; an operator cannot ask for it either while the topic forbids it."""
    world = founded("a", "b", "c")
    world.assign("risky", "a", "b", min_insync_replicas=1, unclean_leader_election=True)
    world.assign("safe", "a", "b", min_insync_replicas=1)
    for name in ("risky", "safe"):
        world.set_isr(name, "a")
    world.fence("a")

    assert world.at("risky").leader_id == "b"
    assert world.at("safe").leader_id is None
    assert world.image.unclean_elections == 1
    with pytest.raises(InvalidRequestError, match="unclean_leader_election"):
        world.propose(
            commands.ElectLeaders(
                parts=[commands.PartName(topic="safe", partition=0)], allow_unclean=True
            )
        )


def test_preferred_leaders_lead_again_when_many_do_not() -> None:
    """Up to a tenth of them may be off; a restart of one of three nodes is more."""
    world = founded("a", "b", "c")
    world.create("orders", 9)
    before = leaders_of(world, "orders")
    world.fence("a")
    world.start("a")
    assert world.propose(commands.BalanceLeaders()) == Done(changed=0), "a is not in sync yet"
    for number in range(9):
        world.set_isr("orders", "a", "b", "c", partition=number)
    assert world.propose(commands.BalanceLeaders()) == Done(changed=3)

    assert leaders_of(world, "orders") == before
    assert world.propose(commands.BalanceLeaders(off_percent_max=0)) == Done(changed=0)


def test_an_operator_elects_preferred_leaders_of_some_partitions() -> None:
    """Those that cannot lead are named."""
    world = founded("a", "b")
    world.assign("one", "a", "b")
    world.assign("two", "a", "b")
    world.fence("a")
    world.start("a")
    world.set_isr("one", "a", "b")
    parts = [commands.PartName(topic=name, partition=0) for name in ("one", "two", "one")]
    reply = world.propose(commands.ElectLeaders(parts=parts, kind="preferred"))

    assert isinstance(reply, PartsReply)
    assert [(part.leader, part.outcome) for part in reply.parts] == [
        ("a", "ok"),
        ("b", "leader_not_available"),
    ]
    with pytest.raises(PartitionNotFoundError):
        world.propose(commands.ElectLeaders(parts=[commands.PartName(topic="one", partition=1)]))


def test_blocks_of_ids_are_given_once_and_name_their_owner() -> None:
    """Over kinds and owners; ids in use before the cluster was made are left out."""
    world = founded("a")
    taken = [world.ids("producer", owner) for owner in (0, 3, 0, 3, 0)]

    assert len(set(taken)) == 5
    assert world.ids("producer", 3, above=10_000_000) > 10_000_000
    assert world.ids("other") == 1


def test_a_leader_that_leaves_itself_out_gives_the_partition_up() -> None:
    """Its disk failed: another replica in sync leads; without one it stays the leader."""
    world = three()
    epoch = world.at("orders").leader_epoch
    assert world.set_isr("orders", "b", "c") == "ok"
    record = world.at("orders")
    assert (record.leader_id, record.leader_epoch) == ("b", epoch + 1)
    assert record.isr_ids == ("b", "c")

    world.fence("c")
    world.set_isr("orders", "b")
    world.fence("a")
    assert world.set_isr("orders") == "invalid_request"
    assert world.at("orders").leader_id == "b"
