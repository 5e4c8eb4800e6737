"""Which nodes hold the replicas of new partitions.

Shape: calculator. Leaders go round the nodes that are alive. The other replicas go to racks that
have none yet, then to nodes that hold the least; ties are decided by the names, so that the same
cluster always gets the same answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from goqueue.base.cluster_limits import REPLICAS_MAX, REPLICATION_FACTOR
from goqueue.base.errors import InvalidRequestError, LeaderNotAvailableError
from goqueue.base.ids import LeaderEpoch, NodeId, PartitionEpoch
from goqueue.core.cluster.records import NodeRecord, PartitionRecord, Replicas, first_of

FULLY_REPLICATED = 3
"""From so many replicas on, a commit waits for two of them."""


class Candidate(NamedTuple):
    """A node that may hold replicas, and how many it holds."""

    node: NodeId
    rack: str
    load: int
    may_lead: bool


def default_factor(nodes: int) -> int:
    """Return how many replicas a partition has in a cluster of so many registered nodes.

    Those that are down count: a topic made meanwhile is to survive as much as the others.
    """
    return max(1, min(REPLICATION_FACTOR, nodes))


def default_min_insync(replication_factor: int) -> int:
    """Return how many replicas a commit waits for at least."""
    return 2 if replication_factor >= FULLY_REPLICATED else 1


def candidates(nodes: Iterable[NodeRecord], loads: Mapping[NodeId, int]) -> list[Candidate]:
    """Return the nodes in the order in which leaders go round."""
    return [
        Candidate(one.id, one.rack, loads.get(one.id, 0), one.may_lead)
        for one in sorted(nodes, key=lambda node: node.id)
        if not one.is_retiring
    ]


def place(
    nodes: Sequence[Candidate], *, partitions: int, replication_factor: int, first: int
) -> list[Replicas]:
    """Return the replicas of new partitions, their leaders first.

    ``first`` says where the round of leaders begins: topics of one partition must not all be led
    by the same node.
    """
    leaders = [one for one in nodes if one.may_lead]
    if not leaders:
        raise LeaderNotAvailableError("no node is alive that could lead a partition")
    if not 1 <= replication_factor <= min(len(nodes), REPLICAS_MAX):
        raise InvalidRequestError(
            f"replication_factor: {replication_factor} is not between 1 and"
            f" {min(len(nodes), REPLICAS_MAX)}; the cluster has {len(nodes)} nodes"
        )
    loads = {one.node: one.load for one in nodes}
    placed: list[Replicas] = []
    for number in range(partitions):
        leader = leaders[(first + number) % len(leaders)]
        chosen = [leader]
        while len(chosen) < replication_factor:
            chosen.append(_follower(nodes, chosen, loads, turn=first + number))
        for one in chosen:
            loads[one.node] += 1
        placed.append(tuple(one.node for one in chosen))
    return placed


def _follower(
    nodes: Sequence[Candidate],
    chosen: Sequence[Candidate],
    loads: Mapping[NodeId, int],
    *,
    turn: int,
) -> Candidate:
    """Return the node for the next replica; equal ones take turns."""
    racks = {one.rack for one in chosen if one.rack}
    places = range(len(nodes))
    best = min(
        (place for place in places if nodes[place] not in chosen),
        key=lambda place: (
            not nodes[place].may_lead,
            nodes[place].rack in racks,
            loads[nodes[place].node],
            (place - turn - 1) % len(nodes),
        ),
    )
    return nodes[best]


def check_assignment(replicas: Sequence[str], nodes: Mapping[NodeId, NodeRecord]) -> Replicas:
    """Return replicas that an operator chose, or raise."""
    if not 1 <= len(replicas) <= REPLICAS_MAX:
        raise InvalidRequestError(f"a partition has 1 to {REPLICAS_MAX} replicas")
    if len(set(replicas)) != len(replicas):
        raise InvalidRequestError("the replicas of a partition are on different nodes")
    unknown = [one for one in replicas if NodeId(one) not in nodes]
    if unknown:
        raise InvalidRequestError(f"the cluster has no node {ascii(unknown[0])[1:-1][:249]}")
    leaving = [one for one in replicas if nodes[NodeId(one)].is_retiring]
    if leaving:
        raise InvalidRequestError(f"the node {leaving[0]} is being removed; it gets no replicas")
    return tuple(NodeId(one) for one in replicas)


def new_partition(replicas: Replicas, nodes: Mapping[NodeId, NodeRecord]) -> PartitionRecord:
    """Return the record of a new partition: in sync are those that are alive, being empty, too."""
    isr = sum((nodes[node].may_lead) << place for place, node in enumerate(replicas))
    if not isr:
        raise LeaderNotAvailableError(f"none of the nodes {', '.join(replicas)} is alive")
    return PartitionRecord(replicas, isr, first_of(isr), LeaderEpoch(1), PartitionEpoch(1))
