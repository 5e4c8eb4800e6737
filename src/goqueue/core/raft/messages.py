"""The values of the quorum: entries, memberships, snapshots, messages, effects of a step.

Shape: codec. Messages, entries and snapshots are msgpack arrays, on the wire and on the disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Annotated, Final, NewType

import msgspec

from goqueue.base.cluster_limits import (
    RAFT_APPEND_ENTRIES_MAX,
    RAFT_ENTRY_BYTES_MAX,
    RAFT_NODES_MAX,
    RAFT_SNAPSHOT_BYTES_MAX,
)

PeerId = NewType("PeerId", int)
"""Number of a member of the quorum, from 1; NO_PEER where there is none. Never given twice."""

Term = NewType("Term", int)
"""A period with at most one leader; it never goes back."""

LogIndex = NewType("LogIndex", int)
"""Position of an entry in the replicated log, from 1."""

NO_PEER: Final = PeerId(0)

# What a message of another node or a file may claim: msgspec checks it before a value is made.
_NUMBER: Final = msgspec.Meta(ge=0, le=2**63 - 1)
_Node = Annotated[PeerId, msgspec.Meta(ge=0, lt=2**31)]
_Term = Annotated[Term, _NUMBER]
_Index = Annotated[LogIndex, _NUMBER]
_Count = Annotated[int, _NUMBER]
_Nodes = Annotated[tuple[_Node, ...], msgspec.Meta(max_length=RAFT_NODES_MAX)]


class EntryKind(IntEnum):
    """What an entry of the log is for."""

    DATA = 0
    """A proposal of the host; the empty one of a new leader is ``EMPTY``."""
    EMPTY = 1
    CHANGE = 2
    """Its data is a ``MembershipChange``."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of the log. Two entries with the same index and term are the same entry."""

    index: _Index
    term: _Term
    kind: EntryKind
    data: Annotated[bytes, msgspec.Meta(max_length=RAFT_ENTRY_BYTES_MAX)]


class ChangeKind(IntEnum):
    """What becomes of a node in a membership change."""

    ADD_LEARNER = 0
    """It receives the log and has no vote; a voter becomes a learner."""
    ADD_VOTER = 1
    """It counts in every majority; a learner becomes a voter."""
    REMOVE = 2


class MembershipChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change of one node. A learner added with its ``life`` lost data (see ``raft.py``)."""

    kind: ChangeKind
    node: _Node
    life: _Count = 0


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """Who is in the quorum. All tuples are sorted; voters and learners have no node in common."""

    voters: _Nodes = ()
    learners: _Nodes = ()
    recovering: _Nodes = ()
    """Learners that were voters until they lost data, and will be again."""
    lives: Annotated[tuple[tuple[_Node, _Count], ...], msgspec.Meta(max_length=RAFT_NODES_MAX)] = ()
    """Which life of its data the quorum counts with, of nodes that ever lost some; others: 0."""

    @property
    def nodes(self) -> tuple[PeerId, ...]:
        """Voters and learners, sorted."""
        return tuple(sorted(self.voters + self.learners))

    def life_of(self, node: PeerId) -> int:
        """Return the life of a node that counts in majorities."""
        return next((life for known, life in self.lives if known == node), 0)


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state of the host behind the entry at ``index``, and who was a member then."""

    index: _Index
    term: _Term
    membership: Membership
    data: Annotated[bytes, msgspec.Meta(max_length=RAFT_SNAPSHOT_BYTES_MAX)]


class HardState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node must remember over restarts beside its log, or it might vote twice."""

    term: _Term = Term(0)
    vote: _Node = NO_PEER
    commit: _Index = LogIndex(0)
    life: _Count = 0
    """Changes to a greater number when the node finds that it lost what it had promised."""


class VoteRequest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Ask for a vote; a pre-vote only asks whether there would be one, and changes nothing."""

    is_pre: bool
    is_transfer: bool
    """The leader itself asked for this election, so its lease does not stand against it."""
    last_index: _Index
    last_term: _Term
    commit: _Index = LogIndex(0)
    commit_term: _Term = Term(0)
    """What the candidate knows to be committed; a new voter may learn by it that it is one."""


class VoteReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """The vote, or its refusal, and what the voter knows to be committed."""

    is_pre: bool
    is_granted: bool
    commit: _Index = LogIndex(0)
    commit_term: _Term = Term(0)


class Append(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """Entries that follow the one at ``previous_index``."""

    previous_index: _Index
    previous_term: _Term
    commit: _Index
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=RAFT_APPEND_ENTRIES_MAX)] = ()


class AppendReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """Up to ``index`` the logs match durably; or the append at ``index`` does not fit.

    Then the hint is the last place where the follower's log may match the leader's.
    """

    index: _Index
    is_rejected: bool = False
    hint_index: _Index = LogIndex(0)
    hint_term: _Term = Term(0)
    life: _Count = 0


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """The leader is there. ``read_round`` numbers the reads that the reply confirms.

    ``commit`` is for a follower whose data is in the same ``life`` as when the leader last heard.
    """

    commit: _Index
    read_round: _Count = 0
    life: _Count = 0


class HeartbeatReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    """The follower is there, and knows no later leader."""

    read_round: _Count = 0
    life: _Count = 0


class InstallSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7):
    """Replaces a log that the leader's no longer reaches back to."""

    snapshot: Snapshot


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=8):
    """Begin an election at once: the leader hands over."""


class ReadRequest(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=9):
    """A follower asks for a read index."""

    context: _Count


class ReadReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10):
    """What is applied up to ``index`` answers the read."""

    context: _Count
    index: _Index


Body = (
    VoteRequest
    | VoteReply
    | Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | InstallSnapshot
    | TimeoutNow
    | ReadRequest
    | ReadReply
)


class RaftMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one node says to another in some term."""

    sender: _Node
    to: _Node
    term: _Term
    body: Body


class RaftRole(Enum):
    """What a node does in its term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class ReadState(msgspec.Struct, frozen=True, gc=False):
    """The read with this context may be answered once ``index`` is applied."""

    context: int
    index: LogIndex


class LeaderState(msgspec.Struct, frozen=True, gc=False):
    """Who leads, as far as this node knows."""

    role: RaftRole
    leader: PeerId
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """What a node finds on its disk: the entries that follow a boundary, and a snapshot."""

    hard_state: HardState
    snapshot: Snapshot
    boundary: tuple[LogIndex, Term]
    entries: Sequence[Entry] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What follows from the steps since the last effects, to be carried out in this order.

    ``messages`` may be sent at once. ``snapshot``, ``hard_state`` and ``entries`` are made durable,
    the entries in place of any at their indexes and behind them. Then ``Raft.persisted`` is called
    and ``replies`` are sent: they promise what is durable now. Then the snapshot is installed,
    ``committed`` is applied, and ``Raft.applied`` is called. ``reads`` and ``leadership`` are news.
    """

    hard_state: HardState | None = None
    entries: Sequence[Entry] = ()
    snapshot: Snapshot | None = None
    messages: Sequence[RaftMessage] = ()
    replies: Sequence[RaftMessage] = ()
    committed: Sequence[Entry] = ()
    reads: Sequence[ReadState] = ()
    leadership: LeaderState | None = None
    last_index: LogIndex = field(default=LogIndex(0))
    """The end of the log that is durable when this is."""

    @property
    def must_persist(self) -> bool:
        """Return True if there is something to make durable."""
        return self.hard_state is not None
