"""A node while it leads: it replicates, commits, confirms reads and changes the membership.

Shape: stepper. It lasts for one term at most; ``Raft`` makes it when an election is won and drops
it when a later term is seen or no majority answers.
"""

from collections.abc import Iterable, Sequence

from goqueue.base.errors import InvalidRequestError, NotLeaderError, OverloadedError
from goqueue.core.raft.followers import Followers
from goqueue.core.raft.messages import (
    NO_PEER,
    Append,
    AppendReply,
    ChangeKind,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    LogIndex,
    MembershipChange,
    PeerId,
    ReadReply,
    ReadState,
    TimeoutNow,
)
from goqueue.core.raft.progress import FollowerProgress, Mode
from goqueue.core.raft.quorum import change_in, changed, encode_change
from goqueue.core.raft.reads import PendingReads
from goqueue.core.raft.state import NodeState


class Leader:
    """The leader's view of all members, itself included."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._log = state.log
        self.progress = Followers(state)
        self.transferee = NO_PEER
        self._heartbeat_elapsed = 0
        self._uncommitted_bytes = 0
        self.reads = PendingReads(state.node)
        self._append([(EntryKind.EMPTY, b"")])
        pending = self._log.entries[self._log.applied - self._log.boundary_index :]
        self._is_leaving = any(self._takes_own_vote(entry) for entry in pending)
        """Nothing may follow a change that takes this node's vote: the others need that vote to
        elect a leader before they know of the change, and would not get it with a shorter log."""
        self._change_index = self._log.last_index
        """No change is proposed before this is applied: it might be the second at a time."""
        self._broadcast_append()

    def tick(self) -> None:
        """Send heartbeats."""
        self._heartbeat_elapsed += 1
        if self._heartbeat_elapsed >= self._state.config.heartbeat_ticks:
            self._heartbeat_elapsed = 0
            self._broadcast_heartbeat()

    def check_quorum(self) -> bool:
        """Return True if a majority was heard of since the last check. A handover ends here."""
        self.transferee = NO_PEER
        return self.progress.has_active_majority()

    # Proposals

    def propose(self, proposals: Sequence[bytes]) -> LogIndex:
        """Append proposals to the log; return the index of the last one."""
        size = sum(map(len, proposals))
        self._check_staying()
        if (
            self._uncommitted_bytes
            and self._uncommitted_bytes + size > self._state.config.uncommitted_bytes_max
        ):
            raise OverloadedError("too many proposals wait for the quorum")
        self._uncommitted_bytes += size
        self._append([(EntryKind.DATA, data) for data in proposals])
        self._broadcast_append()
        return self._log.last_index

    def propose_change(self, change: MembershipChange) -> LogIndex:
        """Append a change of the membership, unless another one may be under way."""
        self._check_staying()
        if self._change_index > self._log.applied:
            raise OverloadedError("another change of the membership is under way")
        if changed(self._state.membership, change) is None:
            raise InvalidRequestError("there would be no voter left, or too many members")
        self._append([(EntryKind.CHANGE, encode_change(change))])
        self._change_index = self._log.last_index
        self._is_leaving = self._takes_own_vote(self._log.entries[-1])
        self._broadcast_append()
        return self._log.last_index

    def _check_staying(self) -> None:
        if self.transferee != NO_PEER or self._is_leaving:
            raise NotLeaderError("the leader is handing over to another node")

    def _takes_own_vote(self, entry: Entry) -> bool:
        if entry.kind is not EntryKind.CHANGE:
            return False
        change = change_in(entry)
        return change.node == self._state.node and change.kind is not ChangeKind.ADD_VOTER

    def _append(self, bodies: Iterable[tuple[EntryKind, bytes]]) -> None:
        term = self._state.term
        start = self._log.last_index + 1
        self._log.append(
            [Entry(LogIndex(at), term, kind, data) for at, (kind, data) in enumerate(bodies, start)]
        )

    def applied(self, entries: Sequence[Entry]) -> None:
        """Make room for other proposals."""
        size = sum(len(entry.data) for entry in entries if entry.kind is EntryKind.DATA)
        self._uncommitted_bytes = max(0, self._uncommitted_bytes - size)

    def persisted(self) -> None:
        """Count what is durable here."""
        own = self.progress.get(self._state.node)
        if own is not None and own.advance(self._log.stable):
            self._commit()

    def change_membership(self) -> None:
        """Send to exactly those who are members now."""
        self.progress.follow_membership()
        if self.transferee not in self._state.membership.voters:
            self.transferee = NO_PEER
        if not self._commit():
            for node in self.progress:
                self._send_append(node, even_if_empty=False)

    # Replication

    def _broadcast_append(self) -> None:
        for node in self.progress:
            self._send_append(node)

    def _send_append(self, node: PeerId, *, even_if_empty: bool = True) -> bool:
        """Send what comes next to a follower, or a snapshot; return False if nothing was sent."""
        progress = self.progress[node]
        if node == self._state.node or progress.is_waiting:
            return False
        previous = LogIndex(progress.next - 1)
        term = self._log.term_at(previous)
        if term is None:
            return self._send_snapshot(node, progress)
        entries: tuple[Entry, ...] = ()
        if previous < self._log.last_index and not progress.is_window_full:
            entries = self._log.slice_from(
                progress.next, bytes_max=self._state.config.append_bytes_max
            )
        if not entries and not even_if_empty:
            return False
        self._state.send(node, Append(previous, term, self._log.commit, entries))
        progress.sent(len(entries), commit=self._log.commit)
        return True

    def _send_snapshot(self, node: PeerId, progress: FollowerProgress) -> bool:
        if not progress.is_active:
            return False
        progress.send_snapshot(self._log.snapshot.index)
        self._state.send(node, InstallSnapshot(self._log.snapshot))
        return True

    def receive_append_reply(self, node: PeerId, body: AppendReply) -> None:
        """Learn how far a follower is."""
        progress = self._heard_of(node, body.life)
        if progress is None:
            return
        if body.is_rejected:
            hint = body.hint_index
            if body.hint_term:
                hint, _ = self._log.find_match(hint, body.hint_term)
            if progress.retreat(body.index, hint):
                self._send_append(node)
        elif progress.advance(body.index) or (
            progress.match == body.index and progress.mode is Mode.PROBE
        ):
            self._go_on(node, progress)

    def _go_on(self, node: PeerId, progress: FollowerProgress) -> None:
        """Send what a reply has made room for."""
        progress.settle(first_index=LogIndex(self._log.boundary_index + 1))
        if not self._commit() and progress.lacks_commit(self._log.commit):
            self._send_append(node)
        while self._send_append(node, even_if_empty=False):
            pass
        if node == self.transferee and progress.match == self._log.last_index:
            self._state.send(node, TimeoutNow())

    def _heard_of(self, node: PeerId, life: int) -> FollowerProgress | None:
        progress = self.progress.get(node)
        if progress is None or life < progress.life:
            return None
        if life > progress.life:
            progress.lose(life, next_index=LogIndex(self._log.last_index + 1))
            self.reads.forget(node)
        progress.is_active = True
        self._mend(node, progress)
        return progress

    def _mend(self, node: PeerId, progress: FollowerProgress) -> None:
        """Take the vote of a node that lost data, and give it back when it has everything."""
        membership = self._state.membership
        if not self.progress.counts(node):
            change = MembershipChange(ChangeKind.ADD_LEARNER, node, progress.life)
        elif node in membership.recovering and progress.match >= self._log.commit:
            change = MembershipChange(ChangeKind.ADD_VOTER, node)
        else:
            return
        if self._change_index <= self._log.applied and self.transferee == NO_PEER:
            self.propose_change(change)

    def _commit(self) -> bool:
        """Commit what a majority has; return True if that is more than before."""
        index = self.progress.majority_match()
        if index <= self._log.commit or self._log.term_at(index) != self._state.term:
            return False
        self._log.commit_to(index)
        for node, context in self.reads.take_postponed():
            self.read(node, context)
        self._broadcast_append()
        return True

    # Heartbeats and reads

    def _broadcast_heartbeat(self) -> None:
        read_round = self.reads.round
        for node, progress in self.progress.items():
            if node != self._state.node:
                commit = min(progress.match, self._log.commit)
                self._state.send(node, Heartbeat(commit, read_round, progress.life))
                progress.sent_commit = commit

    def receive_heartbeat_reply(self, node: PeerId, body: HeartbeatReply) -> None:
        """Go on where replies were lost, and count who confirms the reads."""
        progress = self._heard_of(node, body.life)
        if progress is None:
            return
        progress.is_paused = False
        if progress.match < self._log.last_index or progress.mode is Mode.PROBE:
            self._send_append(node)
        if body.read_round and self.progress.counts(node):
            self.reads.ack(node, body.read_round)
            self._answer_reads()

    def read(self, node: PeerId, context: int) -> bool:
        """Find out what a read must have seen applied; return False if there are too many."""
        if self.reads.is_full:
            return False
        if not self._state.has_committed_in_term():
            self.reads.postpone(node, context)
            return True
        self.reads.add(node, context, self._log.commit)
        if self._state.membership.voters == (self._state.node,):
            self._answer_reads()
        else:
            self._broadcast_heartbeat()
        return True

    def _answer_reads(self) -> None:
        for node, context, index in self.reads.confirmed(self._state.membership):
            if node == self._state.node:
                self._state.reads.append(ReadState(context, index))
            else:
                self._state.send(node, ReadReply(context, index))

    # Handing over

    def transfer(self, node: PeerId) -> None:
        """Let a voter take over, once it has everything; give up after an election timeout.

        Handing over to itself ends what was begun.
        """
        if node == self.transferee:
            return
        if node == self._state.node:
            self.transferee = NO_PEER
            return
        if node not in self._state.membership.voters or not self.progress.counts(node):
            raise InvalidRequestError(f"node {node} has no vote, so it cannot lead")
        self.transferee = node
        self._state.election_elapsed = 0
        if self.progress[node].match == self._log.last_index:
            self._state.send(node, TimeoutNow())
        else:
            self._send_append(node)

    def unreachable(self, node: PeerId) -> None:
        """Send no more ahead to a follower whose messages were lost."""
        progress = self.progress.get(node)
        if progress is not None and progress.mode is Mode.REPLICATE:
            progress.probe()

    def snapshot_ended(self, node: PeerId, *, is_ok: bool) -> None:
        """Go on after a snapshot was sent, or was not."""
        progress = self.progress.get(node)
        if progress is not None:
            progress.snapshot_ended(is_ok=is_ok)
