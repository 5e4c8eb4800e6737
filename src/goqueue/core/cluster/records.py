"""What a cluster's metadata is made of: nodes, partitions, moves of replicas.

Shape: codec. The sets of a partition are bits, one for each of its replicas in their order: what is
in sync is then a subset of the replicas by construction, and a change of it is a small number.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from goqueue.base.errors import ReassignmentNotFoundError
from goqueue.base.ids import (
    DirectoryId,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    TopicId,
    TopicName,
)
from goqueue.core.cluster.states import (
    MOVES_OPEN,
    REASSIGNMENTS_OPEN,
    MoveState,
    NodeStatus,
    ReassignmentState,
)

NONE: Final = -1
"""In the place of a replica: there is no leader, or none is known."""

Replicas = tuple[NodeId, ...]
"""The nodes that hold a partition, the preferred leader first."""


class NodeAddresses(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Where the listeners of a node are reached, as ``host:port``; empty if there is none."""

    native: str = ""
    http: str = ""
    cluster: str = ""


class NodeRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A node as the cluster knows it."""

    id: NodeId
    directory: DirectoryId
    incarnation: int
    """How often a process of the directory was started; the directory counts this."""
    epoch: NodeEpoch
    addresses: NodeAddresses
    rack: str
    version: str
    feature_level: int
    """The highest level of metadata the node understands."""
    joined_ms: int
    registered_ms: int
    status: NodeStatus = NodeStatus.FENCED
    process: int = 0
    """What the process chose at random, to be known from others that claim the same."""
    is_retiring: bool = False
    """Whether it is to be removed for good: it gets no replicas, and those it has move away."""

    @property
    def may_lead(self) -> bool:
        """Whether it may be given a leadership."""
        return self.status is NodeStatus.ALIVE

    @property
    def is_fenced(self) -> bool:
        """Whether it may be in no set of replicas that are in sync."""
        return self.status is NodeStatus.FENCED


class ReplicationSettings(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The settings of a topic that only clusters have."""

    replication_factor: int
    min_insync_replicas: int
    unclean_leader_election: bool = False


class PartitionRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The replicas of a partition; ``isr``, ``elr``, ``adding`` and ``removing`` are bits."""

    replicas: Replicas
    isr: int
    """Replicas that have everything that is committed, and that every commit waits for."""
    leader: int
    """Its place among the replicas, or NONE. Without a leader nothing is in sync."""
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    elr: int = 0
    """Eligible leaders: they left the isr when it was too small for anything to be committed
    since, so they have all that is."""
    last: int = NONE
    """The last leader, while there is none."""
    adding: int = 0
    removing: int = 0

    @property
    def leader_id(self) -> NodeId | None:
        """The node that leads."""
        return None if self.leader == NONE else self.replicas[self.leader]

    @property
    def isr_ids(self) -> Replicas:
        """The nodes in sync, in the order of the replicas."""
        return members_of(self.replicas, self.isr)

    @property
    def elr_ids(self) -> Replicas:
        """The nodes that may lead when none is in sync."""
        return members_of(self.replicas, self.elr)

    @property
    def is_moving(self) -> bool:
        """Whether its replicas are being changed."""
        return bool(self.adding | self.removing)


class CountChange(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A number of partitions that a topic had from a moment on."""

    count: int
    at_ms: int
    ends: tuple[int, ...] = ()
    """Where the logs of the earlier partitions ended when keys began to go to the new ones."""


class ReplicaMove(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One partition of a reassignment."""

    topic_id: TopicId
    topic: TopicName
    partition: int
    old: Replicas
    new: Replicas
    state: MoveState = MoveState.PENDING
    started_ms: int = 0
    ended_ms: int = 0
    error: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is not over."""
        return self.state in MOVES_OPEN


class Reassignment(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Replicas of some partitions on their way to other nodes."""

    number: int
    started_ms: int
    throttle_bytes: int
    timeout_ms: int
    state: ReassignmentState = ReassignmentState.IN_PROGRESS
    ended_ms: int = 0
    error: str = ""

    @property
    def id(self) -> str:
        """Its name in requests."""
        return f"reassign-{self.number}"

    @property
    def is_open(self) -> bool:
        """Whether it is not over."""
        return self.state in REASSIGNMENTS_OPEN


def members_of(replicas: Replicas, bits: int) -> Replicas:
    """Return the replicas whose bits are set."""
    return tuple(node for place, node in enumerate(replicas) if bits >> place & 1)


def bits_of(replicas: Replicas, members: Iterable[NodeId]) -> int:
    """Return the bits of some of the replicas; others are left out."""
    wanted = set(members)
    return sum(1 << place for place, node in enumerate(replicas) if node in wanted)


def place_of(replicas: Replicas, node: NodeId | None) -> int:
    """Return the place of a node among the replicas, or NONE."""
    return replicas.index(node) if node in replicas else NONE


def first_of(bits: int) -> int:
    """Return the place of the first replica whose bit is set, or NONE."""
    return (bits & -bits).bit_length() - 1


def reassignment_number(name: str) -> int:
    """Return the number in the id of a reassignment, or raise."""
    number = name.removeprefix("reassign-")
    if not (number.isascii() and number.isdigit() and len(number) <= len(str(2**62))):
        raise ReassignmentNotFoundError("an id looks like reassign-1")
    return int(number)
