"""How topics of a cluster are made, configured, scaled and deleted."""

from collections import Counter

import pytest

from goqueue.base.errors import (
    GoQueueError,
    InvalidConfigError,
    InvalidNameError,
    InvalidRequestError,
    LeaderNotAvailableError,
    OperationActiveError,
    TopicExistsError,
    TopicNotFoundError,
)
from goqueue.core.cluster import commands
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.replies import TopicReply
from tests.core.cluster.world import founded, leaders_of


def test_leaders_go_round_the_nodes() -> None:
    """Every node leads as much as any other, and every partition has three replicas."""
    world = founded("a", "b", "c", "d")
    world.create("orders", 12)

    assert set(Counter(leaders_of(world, "orders")).values()) == {3}
    held = Counter(
        node for record in world.image.topic("orders").partitions for node in record.replicas
    )
    assert set(held.values()) == {9}


@pytest.mark.parametrize(
    ("nodes", "factor", "min_insync"), [("a", 1, 1), ("ab", 2, 1), ("abc", 3, 2), ("abcde", 3, 2)]
)
def test_the_defaults_follow_the_number_of_nodes(nodes: str, factor: int, min_insync: int) -> None:
    """Three replicas if there are as many nodes; two of three must have what is committed."""
    world = founded(*nodes)
    world.create("orders", 2)
    replication = world.image.topic("orders").replication

    assert (replication.replication_factor, replication.min_insync_replicas) == (factor, min_insync)
    assert not replication.unclean_leader_election
    assert len(world.at("orders").replicas) == factor


def test_the_settings_of_topics_are_those_of_one_node() -> None:
    """The catalogue decides what a topic may be set to; replication has three settings more."""
    world = founded("a", "b")
    world.create("orders", 1, retention_ms="1d", min_insync_replicas="2")

    assert world.image.catalog.get("orders").settings.retention_ms == 86_400_000
    assert world.image.topic("orders").replication.min_insync_replicas == 2
    with pytest.raises(InvalidConfigError, match="no such setting"):
        world.create("other", 1, colour="red")
    with pytest.raises(InvalidConfigError, match="min_insync_replicas"):
        world.create("other", 1, min_insync_replicas=3)
    with pytest.raises(InvalidConfigError, match="true or false"):
        world.create("other", 1, unclean_leader_election="maybe")
    with pytest.raises(InvalidRequestError, match="the cluster has 2 nodes"):
        world.create("other", 1, replication_factor=3)
    with pytest.raises(TopicExistsError):
        world.create("orders")
    with pytest.raises(InvalidNameError):
        world.create("__mine")


def test_an_operator_may_choose_the_replicas() -> None:
    """They must be different nodes of the cluster, equally many for each partition."""
    world = founded("a", "b", "c")
    world.propose(
        commands.CreateTopic(
            name="orders", partitions=2, assignments={0: ["c", "a"], 1: ["a", "b"]}
        )
    )

    assert [one.replicas for one in world.image.topic("orders").partitions] == [
        ("c", "a"),
        ("a", "b"),
    ]
    for wrong in ({0: ["a"]}, {0: ["a"], 2: ["a"]}, {0: ["a"], 1: ["a", "b"]}):
        with pytest.raises(InvalidRequestError):
            world.propose(commands.CreateTopic(name="x", partitions=2, assignments=dict(wrong)))
    for nodes in (["a", "a"], ["z"], []):
        with pytest.raises(InvalidRequestError):
            world.propose(commands.CreateTopic(name="x", partitions=1, assignments={0: nodes}))


def test_lowering_what_must_be_in_sync_ends_the_claims_of_others() -> None:
    """From then on something is committed that they lack, so they may not lead."""
    world = founded("a", "b", "c")
    world.assign("orders", "a", "b", "c")
    world.fence("c")
    world.fence("b")
    assert world.at("orders").elr_ids == ("b",)
    world.configure("orders", min_insync_replicas=1)

    assert world.at("orders").elr == 0
    world.fence("a")
    world.start("b")
    assert world.at("orders").leader_id is None, "only a has everything"
    world.start("a")
    assert world.at("orders").leader_id == "a"


def test_allowing_unclean_elections_elects_at_once() -> None:
    """This is how an operator gives up what only a lost disk had."""
    world = founded("a", "b", "c")
    world.assign("orders", "a", "b", "c")
    world.set_isr("orders", "a", "c")
    world.fence("a")
    world.fence("c")
    assert world.at("orders").leader_id is None
    world.configure("orders", unclean_leader_election=True)

    assert world.at("orders").leader_id == "b"
    assert world.image.unclean_elections == 1


def test_the_replication_factor_is_changed_by_moving() -> None:
    """A setting cannot make replicas."""
    world = founded("a", "b", "c")
    world.create("orders")
    with pytest.raises(InvalidConfigError, match="reassignment"):
        world.configure("orders", replication_factor=2)


def test_a_deleted_topic_is_gone_for_all() -> None:
    """Made again, it has another id: the folders of the old one belong to the old one (C7)."""
    world = founded("a", "b")
    first = world.create("orders", 3)
    world.propose(commands.DeleteTopic(name="orders"))
    assert not world.image.topics
    assert not world.image.partition_count
    with pytest.raises(TopicNotFoundError):
        world.image.topic("orders")
    second = world.create("orders", 3)

    assert second.topic_id > first.topic_id
    stale = commands.PartIsr(
        topic_id=first.topic_id, partition=0, leader_epoch=1, partition_epoch=1, isr=[]
    )
    assert world.alter(stale, node="a") == ["topic_not_found"]


def test_partitions_are_added_with_leaders_in_one_event() -> None:
    """The count is never larger than the number of partitions that are led."""
    world = founded("a", "b", "c")
    world.create("orders", 2)
    before = len(world.log)
    world.now_ms = 5_000
    reply = world.propose(commands.AddPartitions(name="orders", count=5))

    assert isinstance(reply, TopicReply)
    assert (reply.partitions, reply.added) == (5, 3)
    assert len(world.log) == before + 1
    assert None not in leaders_of(world, "orders")
    assert [(one.count, one.at_ms, one.ends) for one in world.image.topic("orders").history] == [
        (2, 1_000, ()),
        (5, 5_000, ()),
    ]


def test_where_the_old_partitions_ended_is_noted_when_the_new_ones_are_in_use() -> None:
    """Groups that keep the order of keys go by it; it is in snapshots, and in the topic itself."""
    world = founded("a", "b", "c")
    made = world.create("orders", 2)
    world.propose(commands.AddPartitions(name="orders", count=5))
    (growth,) = world.image.catalog.get("orders").growths
    assert not growth.is_over
    with pytest.raises(InvalidRequestError):
        world.propose(commands.FinishScaling(name="orders", topic_id=made.topic_id, ends=[1]))
    world.propose(commands.FinishScaling(name="orders", topic_id=made.topic_id, ends=[10, 20]))
    restored = ClusterImage()
    for event in world.image.snapshot():
        restored.apply(event)

    (growth,) = world.image.catalog.get("orders").growths
    assert (growth.partitions, growth.ends) == (2, (10, 20))
    assert restored.catalog.get("orders") == world.image.catalog.get("orders")
    assert [one.ends for one in restored.topic("orders").history] == [(), (10, 20)]


def test_an_end_of_scaling_is_about_one_topic() -> None:
    """A topic that was deleted and made again is another one, with other ends."""
    world = founded("a")
    first = world.create("orders", 1)
    world.propose(commands.AddPartitions(name="orders", count=2))
    world.propose(commands.DeleteTopic(name="orders"))
    world.create("orders", 1)
    world.propose(commands.AddPartitions(name="orders", count=2))
    world.propose(commands.FinishScaling(name="orders", topic_id=first.topic_id, ends=[7]))

    assert world.image.topic("orders").is_scaling


def test_partitions_only_become_more() -> None:
    """Fewer would lose messages; internal topics are hashed with a fixed count."""
    world = founded("a")
    world.create("orders", 3)
    world.propose(commands.CreateTopic(name="__offsets", partitions=2, by_broker=True))
    for name, count in (("orders", 3), ("orders", 2), ("orders", 10_001), ("__offsets", 3)):
        with pytest.raises(InvalidRequestError):
            world.propose(commands.AddPartitions(name=name, count=count))
    with pytest.raises(TopicNotFoundError):
        world.propose(commands.AddPartitions(name="other", count=9))


def test_one_operation_per_topic() -> None:
    """The next one may begin when the new partitions are in use."""
    world = founded("a")
    made = world.create("orders", 1)
    world.propose(commands.AddPartitions(name="orders", count=2))
    with pytest.raises(OperationActiveError):
        world.propose(commands.AddPartitions(name="orders", count=3))
    world.propose(commands.FinishScaling(name="orders", topic_id=made.topic_id, ends=[0]))
    world.propose(commands.AddPartitions(name="orders", count=3))

    assert len(world.image.topic("orders").partitions) == 3


def test_a_topic_is_placed_on_nodes_that_are_down_if_need_be() -> None:
    """It has as many replicas as others; those that are down catch up when they come."""
    world = founded("a", "b", "c")
    world.fence("c")
    world.create("orders", 4)

    for record in world.image.topic("orders").partitions:
        assert set(record.replicas) == {"a", "b", "c"}
        assert set(record.isr_ids) == {"a", "b"}
        assert record.leader_id == record.replicas[0]


def test_without_a_node_alive_nothing_is_made() -> None:
    """That may change, so it is worth another try."""
    world = founded("a")
    world.fence("a")
    with pytest.raises(LeaderNotAvailableError) as found:
        world.create("orders")

    assert isinstance(found.value, GoQueueError)
    assert found.value.retryable
