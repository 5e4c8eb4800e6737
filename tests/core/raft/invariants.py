"""What must hold of a quorum after every step, checked as cheaply as the steps are."""

from goqueue.core.raft.messages import Entry, LogIndex, PeerId, RaftRole, Term
from goqueue.core.raft.raft import Raft


class BrokenError(AssertionError):
    """A promise of Raft does not hold."""


def check(condition: object, promise: str, *facts: object) -> None:
    if not condition:
        raise BrokenError(promise, *facts)


class Invariants:
    """Sees all nodes of a quorum and remembers what was chosen."""

    def __init__(self) -> None:
        self.leaders: dict[Term, PeerId] = {}
        self.entries: dict[tuple[LogIndex, Term], tuple[Entry, Term | None]] = {}
        self.chosen: dict[LogIndex, Entry] = {}
        self.chosen_max = LogIndex(0)
        self.commits: list[tuple[Term, LogIndex]] = []
        """Commit indexes as they rose, with the term of the node that knew first."""
        self._leading: dict[PeerId, tuple[Term, LogIndex, Term | None]] = {}
        self._terms: dict[PeerId, Term] = {}
        self._commit_known: dict[PeerId, LogIndex] = {}
        self._seen: dict[PeerId, tuple[Term, LogIndex]] = {}

    def founded(self, index: LogIndex) -> None:
        """Begin with a snapshot that all founders have."""
        self.chosen_max = index

    def restarted(self, node: PeerId) -> None:
        """Forget what a process knew beyond its disk."""
        self._leading.pop(node, None)
        self._terms.pop(node, None)
        self._commit_known.pop(node, None)
        self._seen.pop(node, None)

    def after_step(self, raft: Raft) -> None:
        """Check a node that something happened to."""
        node, term, log = raft.node, raft.term, raft.log
        check(term >= self._terms.get(node, 0), "terms never go back", raft)
        self._terms[node] = term
        if raft.role is RaftRole.LEADER:
            self._after_leading(raft)
        else:
            self._leading.pop(node, None)
        self._log_matching(raft)
        known = self._commit_known.get(node, 0)
        check(log.commit >= known, "commit indexes never go back", raft, known)
        if log.commit != known:
            self._commit_known[node] = log.commit
            self._choose(raft, LogIndex(max(known, log.boundary_index)))
        check(log.applied <= log.commit, "only what is committed is applied", raft)

    def _after_leading(self, raft: Raft) -> None:
        node, term, log = raft.node, raft.term, raft.log
        check(self.leaders.setdefault(term, node) == node, "election safety", raft, self.leaders)
        before = self._leading.get(node)
        if before is None or before[0] != term:
            self._leader_completeness(raft)
        else:
            _, last, last_term = before
            is_kept = log.last_index >= last and log.term_at(last) in (last_term, None)
            check(is_kept, "a leader only appends", raft, before)
        self._leading[node] = (term, log.last_index, log.last_term)

    def _leader_completeness(self, raft: Raft) -> None:
        """A new leader has every entry that was committed in an earlier term.

        By log matching it is enough to look at the last of them.
        """
        for term, index in reversed(self.commits):
            if term < raft.term:
                entry = self.chosen[index]
                has = raft.log.term_at(index)
                is_there = has == entry.term or index <= raft.log.boundary_index
                check(is_there, "leader completeness", raft, entry)
                return

    def _log_matching(self, raft: Raft) -> None:
        """An index and a term name one entry, and with it all before it."""
        log = raft.log
        last = (log.last_term, log.last_index)
        before = self._seen.get(raft.node)
        if last == before:
            return
        self._seen[raft.node] = last
        for at in range(len(log.entries) - 1, -1, -1):
            entry = log.entries[at]
            previous = log.entries[at - 1].term if at else log.boundary_term
            known = self.entries.get((entry.index, entry.term))
            if known is None:
                self.entries[entry.index, entry.term] = entry, previous
                continue
            check(known == (entry, previous), "log matching", raft, entry, known)
            # What is before an entry that was seen somewhere was checked there.
            return

    def _choose(self, raft: Raft, known: LogIndex) -> None:
        log = raft.log
        for index in range(known + 1, log.commit + 1):
            entry = log.entries[index - log.boundary_index - 1]
            chosen = self.chosen.setdefault(entry.index, entry)
            check(chosen == entry, "state-machine safety", raft, entry, chosen)
        if log.commit > self.chosen_max:
            check(log.commit in self.chosen, "what is committed was seen", raft)
            self.chosen_max = log.commit
            self.commits.append((raft.term, log.commit))
