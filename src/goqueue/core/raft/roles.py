"""Terms, elections and roles of a node: who leads, and who gives its vote to whom.

Shape: stepper. ``Raft`` passes messages and ticks on to it.
"""

from goqueue.core.raft.leader import Leader
from goqueue.core.raft.messages import (
    NO_PEER,
    Append,
    AppendReply,
    Body,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    LogIndex,
    PeerId,
    RaftMessage,
    RaftRole,
    ReadReply,
    ReadRequest,
    ReadState,
    Term,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from goqueue.core.raft.quorum import outcome
from goqueue.core.raft.state import NodeState


class Roles:
    """Moves a node between follower, candidate and leader."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.leader: Leader | None = None
        """The leader's side of this node, while it leads."""
        self._votes: dict[PeerId, bool] = {}
        self.own_vote_due: RaftRole | None = None
        """The role in which the node has voted for itself, until that vote is taken to the disk."""

    def tick(self) -> None:
        """Let one tick of time pass."""
        state = self._state
        state.election_elapsed += 1
        if self.leader is None:
            if state.election_elapsed >= state.election_timeout:
                self._miss_leader()
            return
        if state.election_elapsed >= state.config.election_ticks:
            state.election_elapsed = 0
            if not self.leader.check_quorum():
                self.follow(state.term, NO_PEER)
                return
        self.leader.tick()

    def _miss_leader(self) -> None:
        """Try to lead. A node that may not forgets the leader, so that nothing is sent to it."""
        state = self._state
        if state.is_promotable:
            state.election_elapsed = 0
            self.campaign()
        else:
            state.leader = NO_PEER

    def campaign(self, *, is_transfer: bool = False) -> None:
        """Ask for votes, unless this node leads or may not: first whether it would get them."""
        state = self._state
        if self.leader is None and state.is_promotable and not state.has_unapplied_change:
            self._ask_for_votes(is_pre=not is_transfer, is_transfer=is_transfer)

    def _ask_for_votes(self, *, is_pre: bool, is_transfer: bool = False) -> None:
        state = self._state
        if is_pre:
            state.role, state.leader = RaftRole.PRE_CANDIDATE, NO_PEER
            self._votes = {}
        else:
            self._reset(Term(state.term + 1))
            state.role, state.vote = RaftRole.CANDIDATE, state.node
        self.own_vote_due = state.role
        term = Term(state.term + 1) if is_pre else state.term
        log = state.log
        body = VoteRequest(is_pre, is_transfer, log.last_index, log.last_term, *log.committed)
        for node in state.membership.voters:
            if node != state.node:
                # Behind the write of the term: a voter may rely on this node knowing it.
                state.reply(node, body, term=term)

    def _reset(self, term: Term) -> None:
        state = self._state
        if term != state.term:
            assert term > state.term, "terms never go back"
            state.term, state.vote = term, NO_PEER
        state.leader = NO_PEER
        state.election_elapsed = 0
        state.draw_timeout()
        self.leader = None
        self._votes = {}
        self.own_vote_due = None

    def follow(self, term: Term, leader: PeerId) -> None:
        """Follow a leader, or wait for one."""
        self._reset(term)
        self._state.role, self._state.leader = RaftRole.FOLLOWER, leader

    def _lead(self) -> None:
        state = self._state
        self._reset(state.term)
        state.role, state.leader = RaftRole.LEADER, state.node
        self.leader = Leader(state)

    # Messages

    def step(self, message: RaftMessage) -> None:
        """Take a message of another node."""
        if message.to != self._state.node:
            return
        body = message.body
        if isinstance(body, VoteRequest) and self._state.is_quarantined:
            # In the term that the candidate is in, or it would not look at what is committed.
            self._refuse(message.sender, body, term=Term(message.term - body.is_pre))
        elif message.term < self._state.term:
            self._answer_old(message)
        elif message.term == self._state.term or self._enter_term(message):
            self._take(message.sender, message.term, message.body)

    def _enter_term(self, message: RaftMessage) -> bool:
        """Go to the later term of a message; return False if the message is to be ignored."""
        state = self._state
        body = message.body
        if isinstance(body, VoteRequest):
            is_leased = state.leader != NO_PEER and (
                state.election_elapsed < state.config.election_ticks
            )
            if is_leased and not body.is_transfer:
                return False
            if body.is_pre:
                return True
        if isinstance(body, VoteReply) and body.is_pre and body.is_granted:
            return True
        is_leader = isinstance(body, Append | Heartbeat | InstallSnapshot)
        self.follow(message.term, message.sender if is_leader else NO_PEER)
        return True

    def _answer_old(self, message: RaftMessage) -> None:
        """Tell an old leader or a would-be candidate of the later term; ignore the rest."""
        state = self._state
        match message.body:
            case Append() | Heartbeat():
                state.reply(message.sender, AppendReply(LogIndex(0), life=state.life))
            case VoteRequest(is_pre=True):
                state.reply(message.sender, VoteReply(is_pre=True, is_granted=False))
            case _:
                pass

    def _take(self, sender: PeerId, term: Term, body: Body) -> None:
        match body:
            case VoteRequest():
                self._judge_candidate(sender, term, body)
            case VoteReply():
                self.count_vote(sender, body)
            case Append() | Heartbeat() | InstallSnapshot():
                self._hear_leader(sender, body)
            case TimeoutNow():
                self._take_over()
            case ReadReply():
                self._state.reads.append(ReadState(body.context, body.index))
            case AppendReply() | HeartbeatReply() | ReadRequest():
                self._hear_follower(sender, body)

    def _take_over(self) -> None:
        """Begin an election at once, because the leader asks for it."""
        if self._state.role is RaftRole.FOLLOWER:
            self.campaign(is_transfer=True)

    def _hear_leader(self, sender: PeerId, body: Append | Heartbeat | InstallSnapshot) -> None:
        state = self._state
        assert self.leader is None, "a term has one leader"
        if state.role is not RaftRole.FOLLOWER:
            self.follow(state.term, sender)
        state.election_elapsed = 0
        state.leader = sender
        match body:
            case Append():
                state.receive_append(sender, body)
            case Heartbeat():
                state.receive_heartbeat(sender, body)
            case InstallSnapshot():
                state.receive_snapshot(sender, body)

    def _hear_follower(
        self, sender: PeerId, body: AppendReply | HeartbeatReply | ReadRequest
    ) -> None:
        if self.leader is None:
            return
        match body:
            case AppendReply():
                self.leader.receive_append_reply(sender, body)
            case HeartbeatReply():
                self.leader.receive_heartbeat_reply(sender, body)
            case ReadRequest():
                self.leader.read(sender, body.context)

    def _judge_candidate(self, sender: PeerId, term: Term, body: VoteRequest) -> None:
        """Vote, if this node has not voted for another and the candidate's log is complete.

        Learners vote, too: one may be a voter already and not know it.
        """
        state = self._state
        may_vote = (
            state.vote == sender
            or (state.vote == NO_PEER and state.leader == NO_PEER)
            or (body.is_pre and term > state.term)
        )
        if may_vote and state.log.is_up_to_date(body.last_index, body.last_term):
            if not body.is_pre:
                state.election_elapsed = 0
                state.vote = sender
            # In the term that was asked for: a candidate ignores answers of earlier ones.
            state.reply(sender, VoteReply(body.is_pre, is_granted=True), term=term)
        else:
            self._refuse(sender, body, term=state.term)
        state.log.commit_by_vote(body.commit, body.commit_term)

    def _refuse(self, sender: PeerId, body: VoteRequest, *, term: Term) -> None:
        index, of_term = self._state.log.committed
        reply = VoteReply(body.is_pre, is_granted=False, commit=index, commit_term=of_term)
        self._state.reply(sender, reply, term=term)

    def count_vote(self, sender: PeerId, body: VoteReply) -> None:
        """Count a vote for this node, or against it."""
        wanted = RaftRole.PRE_CANDIDATE if body.is_pre else RaftRole.CANDIDATE
        if self._state.role is not wanted:
            return
        self._state.log.commit_by_vote(body.commit, body.commit_term)
        self._votes.setdefault(sender, body.is_granted)
        is_won = outcome(self._state.membership, self._votes)
        if is_won is None:
            return
        if not is_won:
            self.follow(self._state.term, NO_PEER)
        elif body.is_pre:
            self._ask_for_votes(is_pre=False)
        else:
            self._lead()
