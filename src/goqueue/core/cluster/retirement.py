"""How a node is removed for good: it gets no more replicas, loses those it has, and is forgotten.

Shape: decider. That a removal began is in the image, so another controller goes on with it. Its
vote in the quorum is taken by the controller (``core/cluster/voters.py``) before it is forgotten.
"""

from goqueue.base.errors import OperationActiveError
from goqueue.base.ids import NodeId
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.records import NodeRecord
from goqueue.core.cluster.replies import Done
from goqueue.core.decision import Decision

Verdict = Decision[Event, Done]


def held_by(image: ClusterImage, node: NodeId) -> int:
    """Return how many partitions have a replica on a node."""
    return sum(count for replicas, count in image.replica_sets.items() if node in replicas)


def wanted_at(image: ClusterImage, node: NodeId) -> int:
    """Return how many partitions are on their way to a node."""
    return sum(
        move.is_open and node in move.new
        for number in image.reassignments
        for move in image.moves_of(number)
    )


def is_empty(image: ClusterImage, node: NodeId) -> bool:
    """Return True if a node holds nothing and gets nothing."""
    return not held_by(image, node) and not wanted_at(image, node)


def retire(image: ClusterImage, command: commands.RetireNode, _now_ms: int) -> Verdict:
    """Begin to remove a node, if what it holds can be elsewhere; or let it stay after all."""
    node = image.node(command.node)
    if command.is_cancelled:
        kept = (events.NodeRetired(node=node.id, is_retiring=False),) if node.is_retiring else ()
        return Decision(kept, Done())
    held, wanted = held_by(image, node.id), wanted_at(image, node.id)
    if wanted:
        raise OperationActiveError(
            f"the node {node.id} gets {wanted} partitions; cancel their reassignment first"
        )
    if held and not command.move_replicas:
        raise OperationActiveError(
            f"the node {node.id} has replicas of {held} partitions;"
            " have them moved to other nodes (--move-replicas), or move them first"
        )
    _check_room(image, node)
    retired = () if node.is_retiring else (events.NodeRetired(node=node.id, is_retiring=True),)
    return Decision(retired, Done(changed=held))


def _check_room(image: ClusterImage, node: NodeRecord) -> None:
    """Raise if the nodes that stay are too few for the replicas there are."""
    staying = {one.id for one in image.nodes.values() if not one.is_retiring} - {node.id}
    if not staying:
        raise OperationActiveError(f"the node {node.id} is the last one; stop it instead")
    for replicas in image.replica_sets:
        if node.id in replicas and len(staying) < len(replicas):
            raise OperationActiveError(
                f"partitions with {len(replicas)} replicas need {len(replicas)} other nodes, and"
                f" {len(staying)} would be left: let another node join first"
            )


def forget(image: ClusterImage, command: commands.ForgetNode, _now_ms: int) -> Verdict:
    """Remove a node that holds nothing, and never let its data directory come back."""
    node = image.node(command.node)
    if not node.is_fenced and not node.is_retiring:
        raise OperationActiveError(f"the node {node.id} is {node.status}; stop it first")
    held, wanted = held_by(image, node.id), wanted_at(image, node.id)
    if held or wanted:
        raise OperationActiveError(
            f"the node {node.id} has replicas of {held} partitions and gets {wanted};"
            " move them first"
        )
    fenced = () if node.is_fenced else (events.NodeFenced(node=node.id, epoch=node.epoch),)
    return Decision((*fenced, events.NodeForgotten(node=node.id)), Done())
