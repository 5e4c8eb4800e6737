"""The replicated log of one node, in memory, behind the boundary of its last compaction.

Shape: stepper. It changes by calls of ``Raft`` only, and says what is to be persisted and applied.

      boundary          applied      commit         stable        taken         last_index
    ------|----------------|------------|--------------|-------------|--------------|
          entries from here on                durable here     being persisted

Everything up to ``commit`` is chosen for ever. ``stable`` and ``commit`` overtake one another;
``applied`` never passes either of them.
"""

from collections.abc import Sequence

from goqueue.base.cluster_limits import RAFT_APPLY_ENTRIES_MAX
from goqueue.core.raft.messages import Entry, LogIndex, Membership, Snapshot, Term


class RaftLog:
    """Entries behind a boundary, and how far they are committed, durable and applied."""

    __slots__ = (
        "applied",
        "boundary_index",
        "boundary_term",
        "commit",
        "entries",
        "last_index",
        "received",
        "snapshot",
        "stable",
        "taken",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        entries: Sequence[Entry] = (),
        *,
        boundary: tuple[LogIndex, Term] | None = None,
        commit: LogIndex,
    ) -> None:
        self.snapshot = snapshot
        self.received: Snapshot | None = None
        """A snapshot of the leader's that is not durable yet."""
        self.boundary_index, self.boundary_term = boundary or (snapshot.index, snapshot.term)
        self.entries = list(entries)
        self.last_index = LogIndex(self.boundary_index + len(self.entries))
        assert self.boundary_index <= snapshot.index <= self.last_index, "no entry is missing"
        assert not entries or entries[-1].index == self.last_index, "indexes follow one another"
        self.commit = LogIndex(min(max(commit, snapshot.index), self.last_index))
        self.applied = snapshot.index
        self.stable = self.taken = self.last_index

    def __repr__(self) -> str:
        return (
            f"<RaftLog ({self.boundary_index}, {self.last_index}], commit {self.commit},"
            f" applied {self.applied}, stable {self.stable}>"
        )

    @property
    def last_term(self) -> Term:
        """The term of the last entry."""
        return self.entries[-1].term if self.entries else self.boundary_term

    def term_at(self, index: LogIndex) -> Term | None:
        """Return the term of an entry; None where it is compacted, or not there yet."""
        place = index - self.boundary_index
        if 0 < place <= len(self.entries):
            return self.entries[place - 1].term
        return self.boundary_term if place == 0 else None

    def is_up_to_date(self, index: LogIndex, term: Term) -> bool:
        """Return True if a log that ends so has everything that is committed, if this one has."""
        last_term = self.last_term
        return term > last_term or (term == last_term and index >= self.last_index)

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries in place of those from their first index on."""
        assert entries[0].index > self.commit, "what is committed is never replaced"
        keep = entries[0].index - self.boundary_index - 1
        assert keep <= len(self.entries), "indexes follow one another"
        if keep < len(self.entries):
            del self.entries[keep:]
            kept = LogIndex(self.boundary_index + keep)
            self.stable, self.taken = min(self.stable, kept), min(self.taken, kept)
        self.entries.extend(entries)
        self.last_index = entries[-1].index

    def accept(
        self, previous_index: LogIndex, previous_term: Term, entries: Sequence[Entry]
    ) -> LogIndex | None:
        """Add the leader's entries; return the last index known to match, None if they do not fit.

        What is there already is not touched: a late message must not cut off what came after it.
        """
        if self.term_at(previous_index) != previous_term:
            return None
        for place, entry in enumerate(entries):
            if self.term_at(entry.index) != entry.term:
                self.append(entries[place:])
                break
        return entries[-1].index if entries else previous_index

    def commit_to(self, index: LogIndex) -> None:
        """Move the commit index, never back."""
        if index > self.commit:
            assert index <= self.last_index, "a leader commits what this node has confirmed"
            self.commit = index

    @property
    def committed(self) -> tuple[LogIndex, Term]:
        """The last entry that is committed."""
        term = self.term_at(self.commit)
        assert term is not None, "what is committed last is still there"
        return self.commit, term

    def commit_by_vote(self, index: LogIndex, term: Term) -> None:
        """Learn of another node, which does not lead, what is committed, if it is here, too.

        Without this an election could have no winner: a learner that was made a voter and has the
        longest log may not know that it may ask for votes.
        """
        if term and self.term_at(index) == term:
            self.commit_to(index)

    def slice_from(self, index: LogIndex, *, bytes_max: int) -> tuple[Entry, ...]:
        """Return entries from an index on, one at least, as far as they fit."""
        start = index - self.boundary_index - 1
        assert start >= 0, "not compacted"
        size, end = 0, start
        for end in range(start, len(self.entries)):
            size += len(self.entries[end].data) + 1
            if size > bytes_max and end > start:
                return tuple(self.entries[start:end])
        return tuple(self.entries[start : end + 1])

    def find_match(self, index: LogIndex, term: Term) -> tuple[LogIndex, Term]:
        """Return the last entry up to an index whose term is no later; term 0 where unknown.

        Two logs cannot match behind it, given that the other one has this term at this index.
        """
        for at in range(index, 0, -1):
            known = self.term_at(LogIndex(at))
            if known is None:
                return LogIndex(at), Term(0)
            if known <= term:
                return LogIndex(at), known
        return LogIndex(0), Term(0)

    def take_unstable(self) -> Sequence[Entry]:
        """Return what is to be persisted next."""
        entries = self.entries[self.taken - self.boundary_index :]
        self.taken = self.last_index
        return entries

    def persisted(self, last_index: LogIndex, snapshot: Snapshot | None) -> None:
        """Note what is durable; what was replaced since it was taken is not."""
        if snapshot is not None and snapshot is self.received:
            self.received = None
            self.applied = snapshot.index
            self.stable = max(self.stable, snapshot.index)
        if self.received is None:
            self.stable = max(self.stable, min(last_index, self.taken))

    def to_apply(self) -> Sequence[Entry]:
        """Return committed entries that are durable here and not applied, the next ones."""
        if self.received is not None:
            return ()
        start = self.applied - self.boundary_index
        end = min(self.commit, self.stable) - self.boundary_index
        return self.entries[start : min(end, start + RAFT_APPLY_ENTRIES_MAX)]

    def restore(self, snapshot: Snapshot) -> None:
        """Replace everything by a snapshot of the leader's."""
        self.snapshot = self.received = snapshot
        self.boundary_index, self.boundary_term = snapshot.index, snapshot.term
        self.entries = []
        self.last_index = self.commit = self.taken = snapshot.index
        self.stable = min(self.stable, snapshot.index)

    def compact(self, data: bytes, membership: Membership, *, keep: int) -> Snapshot:
        """Take a snapshot of what is applied, and forget entries before it but for the last few."""
        assert self.received is None, "nothing is applied beside a snapshot"
        term = self.term_at(self.applied)
        assert term is not None, "what is applied last is still there"
        self.snapshot = Snapshot(self.applied, term, membership, data)
        boundary = LogIndex(max(self.applied - keep, self.boundary_index))
        boundary_term = self.term_at(boundary)
        assert boundary_term is not None, "between the boundary and the end"
        del self.entries[: boundary - self.boundary_index]
        self.boundary_index, self.boundary_term = boundary, boundary_term
        return self.snapshot
