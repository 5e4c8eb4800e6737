"""The words of replication: replica groups, their logs, and what nodes say to each other of them.

Shape: calculator. A *replica group* is a data partition and what is led together with it: its state
log has the same leader, epoch and replicas in sync. A log is named by its group and a number.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, NewType

from goqueue.base.ids import Epoch, NodeEpoch, NodeId, Offset, PartitionEpoch, TopicPartition
from goqueue.core.replication.epochs import EpochEnd, EpochHistory, EpochStart

LogId = NewType("LogId", int)
"""A log within its replica group."""

DATA_LOG: Final = LogId(0)
STATE_LOG: Final = LogId(1)


_ZERO: Final = Offset(0)


class LogKey(NamedTuple):
    """One log of one replica group."""

    group: TopicPartition
    log: LogId

    def __str__(self) -> str:
        return f"{self.group}:{self.log}"


@dataclass(slots=True, kw_only=True)
class ReplicaLog:
    """What a node knows of its copy of a log. It outlives changes of role, and so does its HW."""

    start_offset: Offset = _ZERO
    end_offset: Offset = _ZERO
    """Behind the last message written, synced or not."""
    durable_offset: Offset = _ZERO
    """Behind the last message that an fsync covered."""
    high_watermark: Offset = _ZERO
    """Below it everything is committed, as far as this node knows; it may be beyond its own end."""
    epochs: EpochHistory = field(default_factory=EpochHistory)

    @property
    def committed_offset(self) -> Offset:
        """The high watermark as far as this node may show it: it never exceeds its own disk."""
        return min(self.high_watermark, self.durable_offset)

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last message, NO_EPOCH if there is none."""
        return self.epochs.last_epoch(self.end_offset)

    def appended(self, end_offset: Offset) -> None:
        """Take note of messages that were written behind the last one."""
        assert end_offset >= self.end_offset, "a log only grows"
        self.end_offset = end_offset

    def synced(self, durable_offset: Offset) -> None:
        """Take note of an fsync; one that began before a truncation covers less than it says."""
        reached = min(durable_offset, self.end_offset)
        self.durable_offset = max(self.durable_offset, reached)

    def truncated(self, end_offset: Offset) -> None:
        """Take note that the messages from an offset on are gone, and that the rest is synced."""
        assert self.start_offset <= end_offset <= self.end_offset, "truncation shortens a log"
        self.epochs.truncate(end_offset)
        self.end_offset = self.durable_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)

    def restarted(self, start_offset: Offset) -> None:
        """Take note that the log is empty, durably, and goes on at an offset."""
        self.epochs.clear()
        self.start_offset = self.end_offset = self.durable_offset = start_offset
        self.high_watermark = start_offset

    def trimmed(self, start_offset: Offset) -> None:
        """Take note of what retention removed."""
        assert start_offset <= self.committed_offset, "only what is committed may be removed"
        self.start_offset = max(self.start_offset, start_offset)
        self.epochs.trim(self.start_offset)

    def recovered(self) -> None:
        """Fit what was noted to the log that was found after a crash; all that is left is durable.

        Epochs are noted before their first message, so some may have begun behind the end.
        """
        self.epochs.truncate(self.end_offset)
        self.durable_offset = self.end_offset
        # What retention removed was committed, even if that was never noted.
        self.high_watermark = max(min(self.high_watermark, self.end_offset), self.start_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """What the controller decided about a replica group. ``partition_epoch`` counts the changes."""

    epoch: Epoch
    partition_epoch: PartitionEpoch
    leader: NodeId | None
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    min_insync: int = 1
    adding: tuple[NodeId, ...] = ()
    """Those of the replicas that a reassignment brings in."""
    is_unclean: bool = False
    """Whether a replica may be elected that lacks committed messages."""

    @property
    def isr_size_min(self) -> int:
        """How many must be in sync: a partition with fewer replicas asks for all of them."""
        return min(self.min_insync, len(self.replicas))


class IsrMember(NamedTuple):
    """A replica that is to be in sync: a process, because the next one may have lost its disk.

    The node_epoch is None for a member that is in sync already and was not heard of yet.
    """

    node: NodeId
    node_epoch: NodeEpoch | None


class AlterOutcome(IntEnum):
    """What became of a proposal to change the replicas in sync."""

    ACCEPTED = 0
    STALE = 1
    """The partition has changed meanwhile; the answer brings its present state."""
    FENCED = 2
    """Another node leads, or this one in a later epoch."""
    INELIGIBLE = 3
    """A new member is fenced, leaving or was started again; the partition is as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrAnswer:
    """What the controller says to a proposal, with the partition as it is now."""

    outcome: AlterOutcome
    state: ReplicaSet


class FetchOutcome(IntEnum):
    """What a leader says to the position of a follower."""

    OK = 0
    DIVERGING = 1
    """The follower's log is no prefix of the leader's; it has to be cut."""
    OUT_OF_RANGE = 2
    """The follower ends before the leader's log starts; it has to start again there."""
    FENCED = 3
    """The follower speaks of an epoch that is over."""
    UNKNOWN = 4
    """This node does not lead in that epoch (yet), or does not know the follower; ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPosition:
    """Where a follower's copy of a log ends, in the epoch it follows."""

    epoch: Epoch
    offset: Offset
    last_epoch: Epoch
    durable_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """What a leader says of one log. The frames from ``offset`` to ``end_offset`` go with it.

    ``offset`` and ``last_epoch`` say which log it fits to: one that ends there, with a message of
    that epoch. A follower whose log has moved on finds out by comparing.
    """

    outcome: FetchOutcome
    epoch: Epoch
    offset: Offset
    last_epoch: Epoch
    end_offset: Offset
    high_watermark: Offset
    start_offset: Offset
    epochs: tuple[EpochStart, ...] = ()
    diverging: EpochEnd | None = None
