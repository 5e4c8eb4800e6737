"""What a candidate says and hears beside the votes."""

from goqueue.core.raft.messages import (
    HardState,
    LogIndex,
    Term,
    VoteReply,
    VoteRequest,
)
from tests.core.raft.group import (
    finish,
    message,
    raft_of,
    stored,
)


def vote(
    *, index: int = 1, term: int = 1, is_pre: bool = False, commit: tuple[int, int] = (0, 0)
) -> VoteRequest:
    return VoteRequest(
        is_pre=is_pre,
        is_transfer=False,
        last_index=LogIndex(index),
        last_term=Term(term),
        commit=LogIndex(commit[0]),
        commit_term=Term(commit[1]),
    )


def granted(*, is_pre: bool = False, yes: bool = True) -> VoteReply:
    return VoteReply(is_pre=is_pre, is_granted=yes)


def test_votes_are_asked_for_in_a_term_that_is_durable() -> None:
    """Ours: a voter may rely on the candidate knowing its term after a restart."""
    raft = raft_of(1)
    raft.campaign()
    finish(raft)
    raft.step(message(2, 1, 2, granted(is_pre=True)))
    effects = raft.take_effects()

    assert not effects.messages
    assert [one.to for one in effects.replies] == [2, 3]


def test_a_voter_tells_a_candidate_what_is_committed() -> None:
    """(raft-rs: test_commit_by_vote) A promoted learner with the longest log can then campaign."""
    log = stored(terms=[2, 2, 2], hard=HardState(Term(2), commit=LogIndex(2)))
    raft = raft_of(1, log)
    raft.step(message(2, 1, 3, vote(index=3, term=2, is_pre=True, commit=(3, 2))))
    assert raft.log.commit == 3
    raft.step(message(2, 1, 3, vote(index=3, term=2, is_pre=True, commit=(4, 1))))

    assert raft.log.commit == 3
