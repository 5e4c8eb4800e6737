"""How fast moving replicas may be copied between each pair of nodes.

Shape: calculator. A node that sends to several, or receives from several, divides its rate among
them, so that neither end takes more than the throttle; every node works it out from the image.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from goqueue.base.ids import NodeId, PartitionId, TopicPartition
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.reassignment import open_moves
from goqueue.core.cluster.records import members_of
from goqueue.core.cluster.states import MoveState, ReassignmentState


class Copies(NamedTuple):
    """What moves away from, or to, one node."""

    sent: Mapping[TopicPartition, frozenset[NodeId]]
    """The partitions that it leads, with the nodes that catch up."""
    rates: Mapping[NodeId, int]
    """How many bytes a second each of these nodes is sent at most."""
    paused: frozenset[TopicPartition]
    """The partitions of which it is to copy nothing for now."""


NOTHING = Copies({}, {}, frozenset())


def copies_of(image: ClusterImage, node: NodeId) -> Copies:
    """Return what a node sends to replicas that catch up, how fast, and what it waits with."""
    pairs: dict[tuple[NodeId, NodeId], int] = {}
    sent: dict[TopicPartition, frozenset[NodeId]] = {}
    paused: set[TopicPartition] = set()
    for move in open_moves(image):
        if move.state is not MoveState.CATCHING_UP:
            continue
        reassignment = image.reassignments[image.moving[move.topic_id, move.partition]]
        record = image.topics[move.topic_id].partitions[move.partition]
        place = TopicPartition(move.topic, PartitionId(move.partition))
        behind = frozenset(members_of(record.replicas, record.adding & ~record.isr))
        if reassignment.state is ReassignmentState.PAUSED:
            if node in behind:
                paused.add(place)
            continue
        leader = record.leader_id
        if leader is None:
            continue
        for follower in behind:
            known = pairs.get((leader, follower), reassignment.throttle_bytes)
            pairs[leader, follower] = min(known, reassignment.throttle_bytes)
        if leader == node and behind:
            sent[place] = behind
    senders = Counter(leader for leader, _ in pairs)
    receivers = Counter(follower for _, follower in pairs)
    rates = {
        follower: max(rate // max(senders[leader], receivers[follower]), 1)
        for (leader, follower), rate in pairs.items()
        if leader == node
    }
    return Copies(sent, rates, frozenset(paused))
