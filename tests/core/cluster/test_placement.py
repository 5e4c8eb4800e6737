"""Where the replicas of new partitions go."""

from collections import Counter

import pytest

from goqueue.base.errors import InvalidRequestError, LeaderNotAvailableError
from goqueue.base.ids import NodeId
from goqueue.core.cluster.placement import Candidate, place


def node(name: str, *, rack: str = "", load: int = 0, alive: bool = True) -> Candidate:
    return Candidate(NodeId(name), rack, load, alive)


def test_replicas_are_spread_over_racks() -> None:
    """Three replicas of three racks: the loss of one takes one."""
    nodes = [node(f"{rack}{number}", rack=rack) for rack in "xyz" for number in range(2)]
    placed = place(nodes, partitions=60, replication_factor=3, first=0)

    assert all({one[0] for one in replicas} == set("xyz") for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    loads = Counter(one for replicas in placed for one in replicas)
    assert max(loads.values()) - min(loads.values()) <= 1


def test_a_rack_of_many_nodes_does_not_get_a_second_replica() -> None:
    """Being elsewhere counts more than holding little."""
    nodes = [node("a", rack="x"), node("b", rack="x"), node("c", rack="y", load=100)]
    placed = place(nodes, partitions=4, replication_factor=2, first=0)

    assert all("c" in replicas for replicas in placed)


def test_nodes_that_hold_little_get_followers_first() -> None:
    """Leaders go round all the same."""
    nodes = [node("a", load=50), node("b", load=50), node("c")]
    placed = place(nodes, partitions=30, replication_factor=2, first=0)

    assert Counter(replicas[0] for replicas in placed) == {"a": 10, "b": 10, "c": 10}
    assert Counter(one for replicas in placed for one in replicas)[NodeId("c")] == 30


def test_topics_of_one_partition_are_led_by_different_nodes() -> None:
    """The round of leaders begins elsewhere for each topic."""
    nodes = [node("a"), node("b"), node("c")]
    leaders = [
        place(nodes, partitions=1, replication_factor=1, first=first)[0][0] for first in range(6)
    ]

    assert leaders == ["a", "b", "c", "a", "b", "c"]


def test_the_same_cluster_gets_the_same_answer() -> None:
    """On every node that decides."""
    nodes = [node(name, rack=name[0]) for name in ("xa", "xb", "ya", "yb")]

    assert place(nodes, partitions=50, replication_factor=3, first=7) == place(
        nodes, partitions=50, replication_factor=3, first=7
    )


def test_nodes_that_are_down_never_lead() -> None:
    """They hold replicas only if there are too few others."""
    nodes = [node("a"), node("b", alive=False), node("c")]
    two = place(nodes, partitions=6, replication_factor=2, first=0)
    three = place(nodes, partitions=6, replication_factor=3, first=0)

    assert not any("b" in replicas for replicas in two)
    assert all(replicas[0] != "b" and "b" in replicas for replicas in three)
    with pytest.raises(LeaderNotAvailableError):
        place([node("b", alive=False)], partitions=1, replication_factor=1, first=0)
    with pytest.raises(InvalidRequestError):
        place(nodes, partitions=1, replication_factor=4, first=0)
