"""What a node of the quorum has in every role: its term, vote, log and membership.

Shape: stepper. ``Raft`` and ``Leader`` share it; messages that a step produces gather here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from goqueue.base.cluster_limits import (
    RAFT_APPEND_BYTES_MAX,
    RAFT_UNCOMMITTED_BYTES_MAX,
    RAFT_WINDOW_MESSAGES_MAX,
)
from goqueue.core.raft.log import RaftLog
from goqueue.core.raft.messages import (
    NO_PEER,
    Append,
    AppendReply,
    Body,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    PeerId,
    RaftMessage,
    RaftRole,
    ReadState,
    Snapshot,
    StoredState,
    Term,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """The settings of a node; times are counted in ticks."""

    node: PeerId
    election_ticks: int = 20
    """A follower that hears of no leader for so long, to twice that, begins an election."""
    heartbeat_ticks: int = 5
    window_max: int = RAFT_WINDOW_MESSAGES_MAX
    append_bytes_max: int = RAFT_APPEND_BYTES_MAX
    uncommitted_bytes_max: int = RAFT_UNCOMMITTED_BYTES_MAX


class NodeState:
    """Term, vote, log and membership of a node, and what it is about to send."""

    def __init__(
        self, config: RaftConfig, restored: StoredState, draw: Callable[[int], int]
    ) -> None:
        self.config = config
        self.node = config.node
        self._draw = draw
        self.role = RaftRole.FOLLOWER
        self.leader = NO_PEER
        hard = restored.hard_state
        self.log = RaftLog(
            restored.snapshot, restored.entries, boundary=restored.boundary, commit=hard.commit
        )
        # A snapshot may be of a later term than the vote: the power failed between the two files.
        self.term = max(hard.term, self.log.last_term)
        self.vote = hard.vote if self.term == hard.term else NO_PEER
        self.life = hard.life
        self.membership = restored.snapshot.membership
        self.membership_index = restored.snapshot.index
        """The last entry that the membership has taken into account."""
        self.election_elapsed = 0
        self.election_timeout = 0
        self.draw_timeout()
        self.messages: list[RaftMessage] = []
        self.replies: list[RaftMessage] = []
        self.reads: list[ReadState] = []

    @property
    def hard_state(self) -> HardState:
        """What is to be remembered over restarts."""
        return HardState(self.term, self.vote, self.log.commit, self.life)

    @property
    def is_quarantined(self) -> bool:
        """Return True while the quorum does not know that this node lost data."""
        return self.life != self.membership.life_of(self.node)

    @property
    def is_promotable(self) -> bool:
        """Return True if the node may ask for votes."""
        is_voter = self.node in self.membership.voters
        return is_voter and self.log.received is None and not self.is_quarantined

    @property
    def has_unapplied_change(self) -> bool:
        """Return True if a committed change of the membership is not in force here yet."""
        log = self.log
        start = log.applied - log.boundary_index
        entries = log.entries[start : log.commit - log.boundary_index]
        return any(entry.kind is EntryKind.CHANGE for entry in entries)

    def draw_timeout(self) -> None:
        """Choose at random how long to wait for a leader."""
        ticks = self.config.election_ticks
        self.election_timeout = ticks + self._draw(ticks)

    def send(self, to: PeerId, body: Body, *, term: Term | None = None) -> None:
        """Send at once: the message promises nothing that is not durable."""
        self.messages.append(RaftMessage(self.node, to, self.term if term is None else term, body))

    def reply(self, to: PeerId, body: Body, *, term: Term | None = None) -> None:
        """Send when everything up to now is durable."""
        self.replies.append(RaftMessage(self.node, to, self.term if term is None else term, body))

    def receive_append(self, sender: PeerId, body: Append) -> None:
        """Take the leader's entries, or say where the logs may match."""
        log = self.log
        if body.previous_index < log.commit:
            self.reply(sender, AppendReply(log.commit, life=self.life))
            return
        last = log.accept(body.previous_index, body.previous_term, body.entries)
        if last is not None:
            log.commit_to(min(body.commit, last))
            self.reply(sender, AppendReply(last, life=self.life))
            return
        nearest = min(body.previous_index, log.last_index)
        index, term = log.find_match(nearest, body.previous_term)
        reply = AppendReply(
            body.previous_index, is_rejected=True, hint_index=index, hint_term=term, life=self.life
        )
        self.reply(sender, reply)

    def receive_heartbeat(self, sender: PeerId, body: Heartbeat) -> None:
        """Learn what is committed, unless the leader speaks of data that was lost since."""
        if body.life == self.life:
            self.log.commit_to(body.commit)
        self.send(sender, HeartbeatReply(body.read_round, life=self.life))

    def receive_snapshot(self, sender: PeerId, body: InstallSnapshot) -> None:
        """Replace the log by the leader's snapshot, unless it has all of that."""
        self._restore(body.snapshot)
        self.reply(sender, AppendReply(self.log.commit, life=self.life))

    def _restore(self, snapshot: Snapshot) -> None:
        log = self.log
        if snapshot.index <= log.commit:
            return
        if log.term_at(snapshot.index) == snapshot.term:
            log.commit_to(snapshot.index)
            return
        log.restore(snapshot)
        self.membership = snapshot.membership
        self.membership_index = snapshot.index

    def has_committed_in_term(self) -> bool:
        """Return True if an entry of this term is committed: so is everything before it."""
        return self.log.term_at(self.log.commit) == self.term
