"""How nodes come into a cluster, are fenced and stop.

Shape: decider. Events take everything from a node before it is fenced, and a node is unfenced
before anything is given to it: the leader of a partition is alive behind each entry of the log.
"""

from typing import Final

from goqueue.base.cluster_limits import NODE_ID_CHARACTERS_MAX, NODES_MAX
from goqueue.base.errors import (
    InvalidRequestError,
    NodeFencedError,
    NodeRefusedError,
    OperationActiveError,
    OverloadedError,
    StaleEpochError,
)
from goqueue.base.ids import DirectoryId, NodeEpoch, NodeId
from goqueue.base.names import check_name
from goqueue.core.cluster import commands, events
from goqueue.core.cluster.elections import (
    Changes,
    Departure,
    depart,
    elect_missing,
    hand_over,
)
from goqueue.core.cluster.events import Event
from goqueue.core.cluster.image import ClusterImage
from goqueue.core.cluster.records import NodeAddresses, NodeRecord
from goqueue.core.cluster.replies import Done, NodeReply
from goqueue.core.cluster.states import NodeStatus
from goqueue.core.decision import Decision

Verdict = Decision[Event, NodeReply]

REMOVED: Final = "was removed from the cluster; empty its data directory to let it join again"
"""Words of every refusal of a removed node."""


def found(
    image: ClusterImage, command: commands.FoundCluster, now_ms: int
) -> Decision[Event, Done]:
    """Let the cluster exist, once."""
    check_name(command.cluster_id, field="cluster id")
    if image.cluster_id == command.cluster_id:
        return Decision((), Done())
    if image.cluster_id:
        raise NodeRefusedError(f"this is the cluster {image.cluster_id} already")
    event = events.ClusterFounded(
        cluster_id=command.cluster_id, feature_level=command.feature_level, at_ms=now_ms
    )
    return Decision((event,), Done())


def raise_level(
    image: ClusterImage, command: commands.RaiseFeatureLevel, _now_ms: int
) -> Decision[Event, Done]:
    """Allow newer events, if every registered node understands them, also those that are down."""
    if command.feature_level == image.feature_level:
        return Decision((), Done())
    if command.feature_level < image.feature_level:
        raise InvalidRequestError("feature_level: it is never lowered")
    behind = [one.id for one in image.nodes.values() if one.feature_level < command.feature_level]
    if behind:
        raise InvalidRequestError(f"feature_level: {', '.join(sorted(behind))} must be newer first")
    return Decision((events.FeatureLevelRaised(feature_level=command.feature_level),), Done())


def register(image: ClusterImage, command: commands.RegisterNode, now_ms: int) -> Verdict:
    """Take a started process of a node in, fenced; what its disk cannot have is taken from it."""
    if command.cluster_id != image.cluster_id:
        raise NodeRefusedError(
            f"the node belongs to the cluster {ascii(command.cluster_id)[1:-1]},"
            f" this is {image.cluster_id}"
        )
    node = NodeId(check_name(command.node, field="node id", characters_max=NODE_ID_CHARACTERS_MAX))
    check_name(command.directory, field="directory id", characters_max=NODE_ID_CHARACTERS_MAX)
    if command.feature_level < image.feature_level:
        raise NodeRefusedError(
            f"the node understands metadata up to level {command.feature_level};"
            f" the cluster is at {image.feature_level}"
        )
    _check_directory(image, command)
    known = image.nodes.get(node)
    record = NodeRecord(
        id=node,
        directory=DirectoryId(command.directory),
        incarnation=command.incarnation,
        epoch=image.next_node_epoch,
        addresses=NodeAddresses(native=command.native, http=command.http, cluster=command.cluster),
        rack=command.rack,
        version=command.version,
        feature_level=command.feature_level,
        joined_ms=now_ms if known is None else known.joined_ms,
        registered_ms=now_ms,
        process=command.process,
        is_retiring=known is not None and known.is_retiring,
    )
    if known is None:
        if len(image.nodes) >= NODES_MAX:
            raise OverloadedError(f"the cluster has {NODES_MAX} nodes; forget one first")
        return Decision(
            (events.NodeRegistered(node=record),),
            NodeReply(epoch=record.epoch, status=record.status),
        )
    if _is_repeat(known, record):
        return Decision((), NodeReply(epoch=known.epoch, status=known.status))
    changes = depart(image, node, _departure(known, record, is_clean=command.is_clean))
    return Decision(
        (*changes.events(), events.NodeRegistered(node=record)),
        NodeReply(epoch=record.epoch, status=NodeStatus.FENCED),
    )


def _check_directory(image: ClusterImage, command: commands.RegisterNode) -> None:
    """Refuse a disk of a removed node, two disks under one name, and one disk under two."""
    removed = image.removed.get(DirectoryId(command.directory))
    if removed is not None:
        raise NodeRefusedError(f"the node {removed} {REMOVED}")
    for other in image.nodes.values():
        if other.directory == command.directory and other.id != command.node:
            raise NodeRefusedError(
                f"the data directory belongs to the node {other.id}; was it copied?"
            )
    known = image.nodes.get(NodeId(command.node))
    if known is None:
        return
    if known.directory != command.directory:
        if not known.is_fenced:
            raise NodeRefusedError(
                f"a node {known.id} with another data directory is {known.status};"
                " two nodes cannot have one id"
            )
    elif (command.incarnation, command.process) != (known.incarnation, known.process) and (
        command.incarnation <= known.incarnation
    ):
        raise NodeRefusedError(
            f"the data directory was last started for the time {known.incarnation}, this is"
            f" {command.incarnation}: an old copy of it? Empty it to let the node start again"
        )


def _is_repeat(known: NodeRecord, record: NodeRecord) -> bool:
    """Return True if the same process asks again."""
    if (known.directory, known.incarnation) != (record.directory, record.incarnation):
        return False
    if known.addresses != record.addresses:
        raise NodeRefusedError(
            f"two processes of the node {known.id} use one data directory, or its addresses"
            " changed without a restart"
        )
    return True


def _departure(known: NodeRecord, record: NodeRecord, *, is_clean: bool) -> Departure:
    if known.directory != record.directory:
        return Departure.WIPED
    return Departure.WHOLE if is_clean else Departure.UNSYNCED


def unfence(image: ClusterImage, command: commands.UnfenceNode, _now_ms: int) -> Verdict:
    """Let a node lead and be in sync, and have it lead what waited for it."""
    node = _current(image, command.node, command.epoch)
    if node.status is NodeStatus.LEAVING:
        raise NodeFencedError(f"the node {node.id} is leaving")
    changes = elect_missing(image, plus=node.id)
    unfenced = (events.NodeUnfenced(node=node.id, epoch=node.epoch),) if node.is_fenced else ()
    reply = NodeReply(epoch=node.epoch, status=NodeStatus.ALIVE)
    return Decision((*unfenced, *changes.events()), reply)


def fence(image: ClusterImage, command: commands.FenceNode, _now_ms: int) -> Verdict:
    """Take everything from a node that is dead."""
    node = _current(image, command.node, command.epoch)
    reply = NodeReply(epoch=node.epoch, status=NodeStatus.FENCED)
    if node.is_fenced:
        return Decision((), reply)
    return Decision(_fencing(node, depart(image, node.id, Departure.WHOLE)), reply)


def _fencing(node: NodeRecord, changes: Changes) -> tuple[Event, ...]:
    return (*changes.events(), events.NodeFenced(node=node.id, epoch=node.epoch))


def begin_leave(image: ClusterImage, command: commands.BeginLeave, _now_ms: int) -> Verdict:
    """Give what a node leads to others; it stays in sync until it is let go."""
    node = _current(image, command.node, command.epoch)
    if node.is_fenced:
        return Decision((), NodeReply(epoch=node.epoch, status=node.status))
    begun = (
        (events.LeaveBegun(node=node.id, epoch=node.epoch),)
        if node.status is NodeStatus.ALIVE
        else ()
    )
    changes, stuck = hand_over(image, node.id)
    reply = NodeReply(epoch=node.epoch, status=NodeStatus.LEAVING, leads=stuck)
    return Decision((*begun, *changes.events()), reply)


def finish_leave(image: ClusterImage, command: commands.FinishLeave, _now_ms: int) -> Verdict:
    """Take a leaving node out of everything in sync. The reply FENCED means: go."""
    node = _current(image, command.node, command.epoch)
    if node.status is NodeStatus.ALIVE:
        raise OperationActiveError(f"the node {node.id} has not begun to leave")
    reply = NodeReply(epoch=node.epoch, status=NodeStatus.FENCED)
    if node.is_fenced:
        return Decision((), reply)
    changes, _ = hand_over(image, node.id)
    if changes.rows:
        # Followers came back into sync meanwhile; they take over first.
        reply = NodeReply(epoch=node.epoch, status=NodeStatus.LEAVING, leads=len(changes.rows))
        return Decision(tuple(changes.events()), reply)
    return Decision(_fencing(node, depart(image, node.id, Departure.WHOLE)), reply)


def _current(image: ClusterImage, name: str, epoch: int) -> NodeRecord:
    """Return a node if this is about its present life."""
    node = image.node(name)
    if node.epoch != NodeEpoch(epoch):
        raise StaleEpochError(f"the node {node.id} has the epoch {node.epoch}, not {epoch}")
    return node
