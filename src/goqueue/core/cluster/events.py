"""What happens to a cluster: the entries of its metadata log.

Shape: codec. Events are deltas, structs as arrays: fields are only added at the end, and new events
are written only when every node understands them (``feature_level``).
"""

from collections.abc import Iterable

import msgspec

from goqueue.base.ids import DirectoryId, NodeEpoch, NodeId, TopicId, TopicName
from goqueue.core.cluster.columns import PartitionColumns
from goqueue.core.cluster.records import (
    CountChange,
    NodeRecord,
    PartitionRecord,
    Reassignment,
    ReplicaMove,
    ReplicationSettings,
)
from goqueue.core.cluster.replies import Reply
from goqueue.core.cluster.states import MoveState, ReassignmentState
from goqueue.core.security.events import Event as SecurityEvent
from goqueue.core.topics.catalog import Topic
from goqueue.core.topics.settings import TopicSettings

PartChange = tuple[int, int, int, int, int, int, int, int]
"""Topic id, partition, isr, leader, leader epoch, partition epoch, elr, last leader."""


class ClusterFounded(msgspec.Struct, frozen=True, tag="founded", array_like=True, kw_only=True):
    """The cluster came to be."""

    cluster_id: str
    feature_level: int
    at_ms: int


class FeatureLevelRaised(msgspec.Struct, frozen=True, tag="level", array_like=True, kw_only=True):
    """From here on, events of a newer version may be written."""

    feature_level: int


class NodeRegistered(msgspec.Struct, frozen=True, tag="node", array_like=True, kw_only=True):
    """A process of a node started. It is fenced until it was heard of."""

    node: NodeRecord


class NodeUnfenced(msgspec.Struct, frozen=True, tag="unfenced", array_like=True, kw_only=True):
    """A node may lead partitions and be in sync."""

    node: NodeId
    epoch: NodeEpoch


class NodeFenced(msgspec.Struct, frozen=True, tag="fenced", array_like=True, kw_only=True):
    """A node is dead or gone; the events before this one took everything from it."""

    node: NodeId
    epoch: NodeEpoch


class LeaveBegun(msgspec.Struct, frozen=True, tag="leaving", array_like=True, kw_only=True):
    """A node wants to stop; it gets no more leaderships."""

    node: NodeId
    epoch: NodeEpoch


class NodeRetired(msgspec.Struct, frozen=True, tag="retired", array_like=True, kw_only=True):
    """A node is to be removed for good: it gets no more replicas. Or it is to stay after all."""

    node: NodeId
    is_retiring: bool


class NodeForgotten(msgspec.Struct, frozen=True, tag="forgotten", array_like=True, kw_only=True):
    """A node that holds nothing is no part of the cluster any more."""

    node: NodeId


class TopicPlaced(msgspec.Struct, frozen=True, tag="placed", array_like=True, kw_only=True):
    """A topic came to be, and its partitions have replicas and leaders."""

    topic_id: TopicId
    topic: Topic
    replication: ReplicationSettings
    sets: list[list[NodeId]]
    columns: PartitionColumns


class TopicSet(msgspec.Struct, frozen=True, tag="set", array_like=True, kw_only=True):
    """Settings of a topic changed."""

    topic_id: TopicId
    settings: TopicSettings
    replication: ReplicationSettings
    at_ms: int


class TopicRemoved(msgspec.Struct, frozen=True, tag="removed", array_like=True, kw_only=True):
    """A topic is gone, with all its messages, on all nodes."""

    topic_id: TopicId


class PartitionsPlaced(msgspec.Struct, frozen=True, tag="scaled", array_like=True, kw_only=True):
    """A topic has more partitions, which have replicas and leaders: an operation began."""

    topic_id: TopicId
    change: CountChange
    sets: list[list[NodeId]]
    columns: PartitionColumns


class ScalingFinished(msgspec.Struct, frozen=True, tag="grown", array_like=True, kw_only=True):
    """The new partitions of a topic are in use; the next such operation may begin."""

    topic_id: TopicId
    ends: tuple[int, ...] = ()
    """Where the old ones ended, each when its leader first refused keys that go elsewhere now."""


class PartitionsChanged(msgspec.Struct, frozen=True, tag="parts", array_like=True, kw_only=True):
    """Leaders and sets of replicas in sync changed, in some thousand partitions at most."""

    changes: list[PartChange]
    unclean: list[tuple[int, int]] = []
    """Topic ids and partitions whose new leader may lack committed messages."""


class IdsAllocated(msgspec.Struct, frozen=True, tag="ids", array_like=True, kw_only=True):
    """Blocks of a kind of ids up to an ordinal are given out, for one owner."""

    kind: str
    owner: int
    next_ordinal: int


class ReassignmentBegun(msgspec.Struct, frozen=True, tag="moves", array_like=True, kw_only=True):
    """Replicas of some partitions are to move."""

    reassignment: Reassignment
    moves: list[ReplicaMove]


class MoveStepped(msgspec.Struct, frozen=True, tag="move", array_like=True, kw_only=True):
    """The replicas of one partition began to move, arrived, or were taken back."""

    number: int
    topic_id: TopicId
    partition: int
    state: MoveState
    at_ms: int
    record: PartitionRecord | None = None
    """The partition from now on; None if it stays as it is."""
    error: str = ""


class ReassignmentTurned(msgspec.Struct, frozen=True, tag="turned", array_like=True, kw_only=True):
    """A reassignment was paused or resumed, or is over."""

    number: int
    state: ReassignmentState
    at_ms: int
    error: str = ""


class ProposalAnswered(msgspec.Struct, frozen=True, tag="answer", array_like=True, kw_only=True):
    """A proposal was decided: a repeat of it gets this answer."""

    request_id: str
    kind: str
    at_ms: int
    reply: Reply


class TopicKept(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A topic of a snapshot; its settings are named by their ordinal in the event."""

    topic_id: TopicId
    name: TopicName
    created_ms: int
    updated_ms: int
    partitions: int
    settings: int
    replication: int
    is_scaling: bool = False
    history: list[CountChange] = []
    """Left out if the number of partitions never changed."""


class TopicsRestored(msgspec.Struct, frozen=True, tag="topics", array_like=True, kw_only=True):
    """Topics of a snapshot, the settings and sets they share, and all their partitions in turn."""

    settings: list[TopicSettings]
    replication: list[ReplicationSettings]
    topics: list[TopicKept]
    sets: list[list[NodeId]]
    columns: PartitionColumns


class ReassignmentKept(msgspec.Struct, frozen=True, tag="kept", array_like=True, kw_only=True):
    """A reassignment of a snapshot, as far as it is."""

    reassignment: Reassignment
    moves: list[ReplicaMove]


class SecurityChanged(msgspec.Struct, frozen=True, tag="security", array_like=True, kw_only=True):
    """Something happened to keys or access rules."""

    event: SecurityEvent


class CountersRestored(msgspec.Struct, frozen=True, tag="counters", array_like=True, kw_only=True):
    """The end of a snapshot: the numbers that are given next, and what was counted."""

    version: int
    next_topic_id: int
    next_node_epoch: int
    next_reassignment: int
    unclean_elections: int
    nodes: list[NodeRecord]
    ids: list[tuple[str, int, int]]
    removed: list[tuple[DirectoryId, NodeId]] = []


Event = (
    ClusterFounded
    | FeatureLevelRaised
    | NodeRegistered
    | NodeUnfenced
    | NodeFenced
    | LeaveBegun
    | NodeRetired
    | NodeForgotten
    | TopicPlaced
    | TopicSet
    | TopicRemoved
    | PartitionsPlaced
    | ScalingFinished
    | PartitionsChanged
    | IdsAllocated
    | ReassignmentBegun
    | MoveStepped
    | ReassignmentTurned
    | ProposalAnswered
    | TopicsRestored
    | ReassignmentKept
    | CountersRestored
    | SecurityChanged
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Event).decode


def entries(decided: Iterable[Event]) -> list[list[Event]]:
    """Return the events of a decision as entries of the metadata log.

    An entry is applied as a whole or not at all. Many changes of partitions are several entries;
    verbs that make so many may be repeated, and everything else is in one.
    """
    found: list[list[Event]] = [[]]
    for event in decided:
        found[-1].append(event)
        if isinstance(event, PartitionsChanged):
            found.append([])
    return [entry for entry in found if entry]
