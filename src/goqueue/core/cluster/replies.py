"""What a proposal is answered with; answers are remembered, so that a repeat gets the first one."""

import msgspec

from goqueue.base.ids import LeaderEpoch, NodeEpoch, NodeId, PartitionEpoch, TopicId
from goqueue.core.cluster.states import NodeStatus
from goqueue.core.security.keys import KeyRecord
from goqueue.core.security.rule import Rule

OK = "ok"
"""The outcome of a change that was made, or had been made before."""


class Done(msgspec.Struct, frozen=True, tag="done", array_like=True, kw_only=True):
    """It is so now; ``changed`` counts the partitions that this made different."""

    changed: int = 0


class NodeReply(msgspec.Struct, frozen=True, tag="node", array_like=True, kw_only=True):
    """How a node stands after what it asked for."""

    epoch: NodeEpoch
    status: NodeStatus
    leads: int = 0
    """Partitions that it leads and that no other node can lead at present."""


class TopicReply(msgspec.Struct, frozen=True, tag="topic", array_like=True, kw_only=True):
    """A topic as it is now."""

    topic_id: TopicId
    partitions: int
    added: int = 0


class PartOutcome(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What became of a change to one partition, and how its record is now."""

    topic_id: TopicId
    partition: int
    outcome: str
    """OK or the code of an error."""
    leader: NodeId | None = None
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    partition_epoch: PartitionEpoch = PartitionEpoch(0)
    isr: tuple[NodeId, ...] = ()


class PartsReply(msgspec.Struct, frozen=True, tag="parts", array_like=True, kw_only=True):
    """The outcomes of a change to several partitions."""

    parts: list[PartOutcome]


class IdsReply(msgspec.Struct, frozen=True, tag="ids", array_like=True, kw_only=True):
    """A block of ids that only the asker has."""

    first: int
    count: int


class ReassignmentReply(msgspec.Struct, frozen=True, tag="reassign", array_like=True, kw_only=True):
    """A reassignment, with the moves that are not over."""

    id: str
    moves: int
    refused: int = 0
    """Moves that could not be taken back, because only the new replicas have everything."""


class SecurityDone(msgspec.Struct, frozen=True, tag="security", array_like=True, kw_only=True):
    """The key or the access rule that a change was about, as it is now."""

    key: KeyRecord | None = None
    rule: Rule | None = None


Reply = Done | NodeReply | TopicReply | PartsReply | IdsReply | ReassignmentReply | SecurityDone
