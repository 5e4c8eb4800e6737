"""One node of the quorum: elections, terms and roles, after etcd/raft and raft-rs.

Shape: stepper. ``step`` takes a message, ``tick`` lets a little time pass, ``propose``,
``propose_change``, ``read`` and ``transfer`` are asked by the host. None of them does anything but
change state: ``take_effects`` returns what to persist, send and apply (see ``Effects``).

*Pre-vote*: a node asks for votes in a new term only if a majority would give them, so one that was
cut off does not unseat a leader when it returns. *Lease*: who has heard of a leader within an
election timeout ignores elections. *Check-quorum*: a leader that hears of no majority within an
election timeout steps down. *Empty entry*: a new leader commits one, and with it all before it.

*Lives*: a node that finds its journal damaged may have lost a vote or an entry it had confirmed. It
begins another *life* (a greater number) and is in quarantine: it neither votes nor counts in any
majority until it has applied the change by which the others, without it, take its vote. So every
majority that counts with its new life has a member in common, other than it, with those that
counted with what it lost. When it has everything again, the leader gives the vote back.
"""

from collections.abc import Callable, Sequence

from goqueue.base.errors import NotLeaderError
from goqueue.core.raft.leader import Leader
from goqueue.core.raft.log import RaftLog
from goqueue.core.raft.messages import (
    NO_PEER,
    Effects,
    EntryKind,
    HardState,
    LeaderState,
    LogIndex,
    Membership,
    MembershipChange,
    PeerId,
    RaftMessage,
    RaftRole,
    ReadRequest,
    Snapshot,
    StoredState,
    Term,
    VoteReply,
)
from goqueue.core.raft.quorum import change_in, changed
from goqueue.core.raft.roles import Roles
from goqueue.core.raft.state import NodeState, RaftConfig


class Raft:
    """A member of the quorum. ``draw(n)`` gives a random number from 0 to n - 1."""

    def __init__(
        self, config: RaftConfig, restored: StoredState, draw: Callable[[int], int]
    ) -> None:
        self._state = NodeState(config, restored, draw)
        self._roles = Roles(self._state)
        self._own_vote_taken: RaftRole | None = None
        self._saved = (restored.hard_state.term, restored.hard_state.vote, self._state.life)
        self._told = self.leadership
        self._under_way: Effects | None = None

    def __repr__(self) -> str:
        return f"<Raft {self.node}: {self.role.value} in term {self.term}, {self.log!r}>"

    @property
    def node(self) -> PeerId:
        """This node."""
        return self._state.node

    @property
    def term(self) -> Term:
        """The latest term this node knows."""
        return self._state.term

    @property
    def role(self) -> RaftRole:
        """What this node does in its term."""
        return self._state.role

    @property
    def log(self) -> RaftLog:
        """The log, to be looked at."""
        return self._state.log

    @property
    def membership(self) -> Membership:
        """Who is a member, by the entries that are applied here."""
        return self._state.membership

    @property
    def hard_state(self) -> HardState:
        """What is remembered over restarts."""
        return self._state.hard_state

    @property
    def leadership(self) -> LeaderState:
        """Who leads, as far as this node knows."""
        return LeaderState(self._state.role, self._state.leader, self._state.term)

    @property
    def is_quarantined(self) -> bool:
        """Return True while this node lost data and the quorum has not taken that into account."""
        return self._state.is_quarantined

    @property
    def active(self) -> Sequence[PeerId]:
        """The members that answered this leader lately, and whose answers count."""
        return () if self.leader is None else self.leader.progress.active

    @property
    def leader(self) -> Leader | None:
        """The leader's side of this node, while it leads."""
        return self._roles.leader

    def tick(self) -> None:
        """Let one tick of time pass."""
        self._roles.tick()

    def step(self, message: RaftMessage) -> None:
        """Take a message of another node."""
        self._roles.step(message)

    def campaign(self) -> None:
        """Begin an election now, as if no leader had been heard of."""
        self._roles.campaign()

    # What the host asks for

    def _leading(self) -> Leader:
        if self.leader is None:
            raise NotLeaderError("this node does not lead the quorum")
        return self.leader

    def propose(self, proposals: Sequence[bytes]) -> LogIndex:
        """Add proposals to the log; return the index of the last. They may still get lost."""
        return self._leading().propose(proposals)

    def propose_change(self, change: MembershipChange) -> LogIndex:
        """Add a change of the membership to the log; return its index."""
        return self._leading().propose_change(change)

    def transfer(self, node: PeerId) -> None:
        """Hand leadership over to another voter."""
        self._leading().transfer(node)

    def read(self, context: int) -> bool:
        """Ask for a ``ReadState``; return False where that is not possible now. It may get lost."""
        if self.leader is not None:
            return self.leader.read(self.node, context)
        if self._state.leader == NO_PEER:
            return False
        self._state.send(self._state.leader, ReadRequest(context))
        return True

    def unreachable(self, node: PeerId) -> None:
        """Note that messages to a node were lost."""
        if self.leader is not None:
            self.leader.unreachable(node)

    def snapshot_ended(self, node: PeerId, *, is_ok: bool) -> None:
        """Note that a snapshot reached a node, or did not."""
        if self.leader is not None:
            self.leader.snapshot_ended(node, is_ok=is_ok)

    def compact(self, data: bytes, *, keep: int) -> Snapshot:
        """Replace what is applied by a snapshot of it; some entries stay for slow followers."""
        return self.log.compact(data, self.membership, keep=keep)

    # Effects

    @property
    def has_effects(self) -> bool:
        """Return True if there is something to do."""
        state = self._state
        return bool(
            state.messages
            or state.replies
            or state.reads
            or self._roles.own_vote_due
            or self._needs_write()
            or state.log.to_apply()
            or self._told != self.leadership
        )

    def _needs_write(self) -> bool:
        state = self._state
        log = state.log
        return (
            log.taken < log.last_index
            or log.received is not None
            or self._saved != (state.term, state.vote, state.life)
        )

    def take_effects(self) -> Effects:
        """Return what is to be done. Those taken before must have been persisted and applied."""
        assert self._under_way is None, "effects are carried out one after the other"
        state = self._state
        log = state.log
        is_written = self._needs_write()
        told, self._told = self._told, self.leadership
        effects = Effects(
            hard_state=state.hard_state if is_written else None,
            entries=log.take_unstable(),
            snapshot=log.received,
            messages=state.messages,
            replies=state.replies,
            committed=log.to_apply(),
            reads=state.reads,
            leadership=self._told if told != self._told else None,
            last_index=log.last_index,
        )
        state.messages, state.replies, state.reads = [], [], []
        self._saved = (state.term, state.vote, state.life)
        self._own_vote_taken, self._roles.own_vote_due = self._roles.own_vote_due, None
        self._under_way = effects
        return effects

    def persisted(self, effects: Effects) -> None:
        """Note that effects are durable, so that this node counts in majorities with them."""
        assert effects is self._under_way, "the ones taken last"
        self.log.persisted(effects.last_index, effects.snapshot)
        role, self._own_vote_taken = self._own_vote_taken, None
        hard_state = effects.hard_state
        if role is self.role and (hard_state is None or hard_state.term == self.term):
            self._roles.count_vote(
                self.node, VoteReply(role is RaftRole.PRE_CANDIDATE, is_granted=True)
            )
        if self.leader is not None:
            self.leader.persisted()

    def applied(self, effects: Effects) -> None:
        """Note that the committed entries of effects are applied; changes come into force."""
        assert effects is self._under_way, "the ones taken last"
        self._under_way = None
        if not effects.committed:
            return
        state = self._state
        if state.log.received is None:
            state.log.applied = max(state.log.applied, effects.committed[-1].index)
        for entry in effects.committed:
            if entry.kind is EntryKind.CHANGE and entry.index > state.membership_index:
                self._change_membership(change_in(entry))
            state.membership_index = max(state.membership_index, entry.index)
        if self.leader is not None:
            self.leader.applied(effects.committed)

    def _change_membership(self, change: MembershipChange) -> None:
        state = self._state
        membership = changed(state.membership, change)
        assert membership is not None, "the leader has looked"
        state.membership = membership
        if self.leader is None:
            return
        if state.node in membership.voters:
            self.leader.change_membership()
        else:
            self._roles.follow(state.term, NO_PEER)
