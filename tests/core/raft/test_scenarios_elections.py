"""Elections: the scenarios of etcd/raft's own tests, whose names are in parentheses."""

import pytest

from goqueue.core.raft.messages import (
    NO_PEER,
    Append,
    AppendReply,
    ChangeKind,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    LogIndex,
    MembershipChange,
    PeerId,
    RaftRole,
    Term,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from goqueue.core.raft.quorum import encode_change
from goqueue.core.raft.raft import Raft
from tests.core.raft.group import (
    ELECTION,
    Group,
    bodies,
    entry,
    finish,
    message,
    raft_of,
    said,
    stored,
)

FOLLOWER, LEADER = RaftRole.FOLLOWER, RaftRole.LEADER
PRE, CANDIDATE = RaftRole.PRE_CANDIDATE, RaftRole.CANDIDATE


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


def candidate() -> Raft:
    """Return node 1 of three as a candidate in term 2, its own vote counted."""
    raft = raft_of(1)
    raft.campaign()
    finish(raft)
    raft.step(message(2, 1, 2, granted(is_pre=True)))
    finish(raft)
    assert raft.role is CANDIDATE
    return raft


def test_a_node_starts_as_a_follower() -> None:
    """(TestStartAsFollower)"""
    raft = raft_of(1)

    assert raft.role is FOLLOWER
    assert not raft.has_effects


@pytest.mark.parametrize(
    ("reachable", "leads"),
    [((1, 2, 3), True), ((1, 2), True), ((1,), False)],
)
def test_a_majority_elects_a_leader(reachable: tuple[int, ...], *, leads: bool) -> None:
    """(TestLeaderElection, TestLeaderElectionPreVote, TestLeaderElectionInOneRoundRPC)"""
    group = Group(1, 2, 3)
    for number in (1, 2, 3):
        if number not in reachable:
            group.isolate(number)
    group[1].campaign()
    group.settle()

    assert group[1].role is (LEADER if leads else PRE)
    assert group[1].term == (2 if leads else 1)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_node_can_become_the_leader_in_turn(number: int) -> None:
    """(TestLeaderCycle, TestLeaderCyclePreVote)"""
    group = Group(1, 2, 3)
    for one in (1, 2, 3, number):
        group.elect(one)

        assert group.leaders() == [one]
        assert len({raft.term for raft in group.rafts.values()}) == 1


def test_a_single_node_elects_itself() -> None:
    """(TestSingleNodeCandidate, TestSingleNodePreCandidate)"""
    group = Group(1)
    group[1].campaign()
    group.settle()

    assert group[1].role is LEADER


def test_a_candidate_votes_for_itself_only_when_that_is_durable() -> None:
    """(TestCandidateSelfVoteAfterLostElection, TestSingleNodeCandidate)"""
    raft = raft_of(1, stored([1]))
    raft.campaign()
    effects = raft.take_effects()
    assert raft.role is PRE
    raft.persisted(effects)
    raft.applied(effects)
    effects = raft.take_effects()
    assert raft.role is CANDIDATE
    assert effects.hard_state is not None
    assert effects.hard_state.vote == 1
    raft.persisted(effects)

    assert raft.role is LEADER


def test_a_lost_election_is_not_won_by_a_late_vote_of_its_own() -> None:
    """(TestCandidateSelfVoteAfterLostElection, ...PreVote,
    TestCandidateDeliversPreCandidateSelfVoteAfterBecomingCandidate)
    """
    raft = raft_of(1)
    raft.campaign()
    effects = raft.take_effects()
    raft.step(message(2, 1, 5, Heartbeat(LogIndex(1))))
    raft.persisted(effects)
    raft.applied(effects)

    assert raft.role is FOLLOWER
    assert raft.term == 5


def test_a_follower_waits_for_a_random_time() -> None:
    """(TestFollowerElectionTimeoutRandomized, TestFollowersElectionTimeoutNonconflict,
    TestPastElectionTimeout, TestFollowerStartElection)
    """
    for drawn in range(ELECTION):

        def draw(count: int, drawn: int = drawn) -> int:
            return min(drawn, count - 1)

        raft = raft_of(1, draw=draw)
        for _ in range(ELECTION + drawn - 1):
            raft.tick()
        assert raft.role is FOLLOWER
        raft.tick()

        assert raft.role is PRE
        assert len(bodies(raft, VoteRequest)) == 2


def test_a_candidate_begins_again_after_its_time() -> None:
    """(TestCandidateStartNewElection, TestCandidateElectionTimeoutRandomized,
    TestCandidatesElectionTimeoutNonconflict)
    """
    group = Group(1, 2, 3)
    group.ignored = (VoteReply,)
    group[1].campaign()
    group.settle()
    group.heal()
    group.expire_leases()
    group.tick(1, ELECTION)

    assert group[1].role is LEADER


@pytest.mark.parametrize("role", ["follower", "candidate", "leader"])
def test_a_later_term_makes_any_node_a_follower(role: str) -> None:
    """(TestFollowerUpdateTermFromMessage, TestCandidateUpdateTermFromMessage,
    TestLeaderUpdateTermFromMessage, TestAllServerStepdown, TestStateTransition)
    """
    group = Group(1, 2, 3)
    if role == "candidate":
        group.ignored = (VoteReply,)
        group[1].campaign()
    if role == "leader":
        group[1].campaign()
    group.settle()
    group[1].step(message(2, 1, 9, Append(LogIndex(1), Term(1), LogIndex(1))))

    assert group[1].role is FOLLOWER
    assert group[1].term == 9
    assert group[1].leadership.leader == 2


def test_messages_of_an_earlier_term_change_nothing() -> None:
    """(TestRejectStaleTermMessage, TestStepIgnoreOldTermMsg, TestOldMessages)"""
    raft = raft_of(1, stored(terms=[2, 3]))
    raft.step(message(2, 1, 2, Append(LogIndex(1), Term(1), LogIndex(1), (entry(2, 2, b"old"),))))
    raft.step(message(2, 1, 2, vote(index=9, term=9)))
    raft.step(message(2, 1, 2, AppendReply(LogIndex(9))))

    assert raft.term == 3
    assert [one.data for one in raft.log.entries] == [b"2", b"3"]
    # The old leader hears of the later term, so that it does not go on for ever.
    assert said(raft) == [message(1, 2, 3, AppendReply(LogIndex(0)))]


@pytest.mark.parametrize(
    ("voted", "asking", "index", "term", "gives"),
    [
        (0, 2, 3, 3, True),
        (0, 2, 4, 3, True),
        (0, 2, 2, 4, True),
        (0, 2, 2, 3, False),
        (0, 2, 9, 2, False),
        (2, 2, 3, 3, True),
        (3, 2, 3, 3, False),
    ],
)
def test_a_vote_goes_to_one_candidate_whose_log_is_complete(
    voted: int, asking: int, index: int, term: int, *, gives: bool
) -> None:
    """(TestRecvMsgVote, TestFollowerVote, TestVoter, TestVoteRequest)"""
    state = stored(terms=[3, 3], hard=HardState(Term(4), PeerId(voted)))
    raft = raft_of(1, state)
    raft.step(message(asking, 1, 4, vote(index=index, term=term)))
    (reply,) = bodies(raft, VoteReply)

    assert isinstance(reply, VoteReply)
    assert reply.is_granted is gives
    assert raft.hard_state.vote == (asking if gives else voted)


def test_a_vote_is_sent_only_when_it_is_durable() -> None:
    """(TestVoter; thesis 3.8)"""
    raft = raft_of(1)
    raft.step(message(2, 1, 2, vote()))
    effects = raft.take_effects()

    assert effects.messages == []
    assert [one.body for one in effects.replies] == [granted()]
    assert effects.hard_state is not None
    assert effects.hard_state.vote == 2


@pytest.mark.parametrize("is_pre", [False, True])
@pytest.mark.parametrize("role", ["follower", "pre-candidate", "candidate", "leader"])
def test_any_node_votes_in_a_later_term(role: str, *, is_pre: bool) -> None:
    """(TestVoteFromAnyState, TestPreVoteFromAnyState, TestRecvMsgPreVote)"""
    group = Group(1, 2, 3)
    if role != "follower":
        group.ignored = () if role == "leader" else (VoteReply,)
        if role == "candidate":
            group[1]._roles._ask_for_votes(is_pre=False)  # noqa: SLF001
        else:
            group[1].campaign()
        group.settle()
    group.expire_leases()
    term = group[1].term
    group[1].step(message(2, 1, term + 1, vote(index=9, term=9, is_pre=is_pre)))
    (reply,) = bodies(group[1], VoteReply)

    assert reply == granted(is_pre=is_pre)
    assert group[1].term == (term if is_pre else term + 1)
    assert group[1].hard_state.vote == (2 if not is_pre else group[1].hard_state.vote)


def test_a_pre_vote_changes_nothing_of_the_voter() -> None:
    """(TestPreVoteFromAnyState)"""
    raft = raft_of(1)
    before = raft.hard_state
    raft.step(message(2, 1, 7, vote(is_pre=True)))

    assert said(raft) == [message(1, 2, 7, granted(is_pre=True))]
    assert raft.hard_state == before


@pytest.mark.parametrize("kind", ["append", "heartbeat"])
def test_a_candidate_gives_up_for_a_leader_of_its_term(kind: str) -> None:
    """(TestCandidateFallback, TestCandidateConcede, TestCandidateResetTermMsgHeartbeat,
    TestCandidateResetTermMsgApp)
    """
    group = Group(1, 2, 3)
    group.isolate(3)
    group.elect(1)
    group[3]._roles._ask_for_votes(is_pre=False)  # noqa: SLF001
    assert group[3].term == group[1].term
    body = Append(LogIndex(1), Term(1), LogIndex(1)) if kind == "append" else Heartbeat(LogIndex(1))
    group[3].step(message(1, 3, 2, body))

    assert group[3].role is FOLLOWER
    assert group[3].leadership.leader == 1


def test_of_two_candidates_one_wins() -> None:
    """(TestDuelingCandidates, TestDuelingPreCandidates)"""
    group = Group(1, 2, 3)
    group.cut = {(1, 3), (3, 1)}
    group[1].campaign()
    group[3].campaign()
    group.settle()
    assert group.leaders() == [1]
    group.heal()
    group.expire_leases()
    group[3].campaign()
    group.settle()

    # The loser's log is shorter, and by the pre-vote it does not unseat the leader.
    assert group.leaders() == [1]
    assert group[3].term == group[1].term


def test_a_split_vote_is_decided_by_the_next_election() -> None:
    """(TestPreVoteWithSplitVote)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(1)
    group.expire_leases()
    group[2].campaign()
    group[3].campaign()
    messages = group.collect()
    for one in messages:
        group[one.to].step(one)
    group.settle()
    for number in (2, 3):
        if group[number].role is not LEADER:
            group.expire_leases()
            group.tick(number, 2 * ELECTION)

    assert len([one for one in group.leaders() if one != 1]) == 1


def test_a_leader_without_a_majority_steps_down() -> None:
    """(TestLeaderStepdownWhenQuorumActive, TestLeaderStepdownWhenQuorumLost)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.tick(1, 2 * ELECTION)
    assert group[1].role is LEADER
    group.isolate(1)
    group.tick(1, 2 * ELECTION)

    assert group[1].role is not LEADER


def test_a_follower_of_a_leader_ignores_elections() -> None:
    """(TestLeaderSupersedingWithCheckQuorum, TestLeaderElectionWithCheckQuorum)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.tick(1)
    group[3]._roles._ask_for_votes(is_pre=False)  # noqa: SLF001
    group.settle()
    assert group[3].role is CANDIDATE
    assert group[2].term == 2

    group.isolate(1)
    group.expire_leases()
    group[3]._roles._ask_for_votes(is_pre=False)  # noqa: SLF001
    group.settle()
    assert group[3].role is LEADER


def test_a_node_that_was_cut_off_does_not_disturb() -> None:
    """(TestDisruptiveFollowerPreVote, TestPreVoteWithCheckQuorum)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    group.tick(3, 5 * ELECTION)
    assert group[3].term == 2
    group.heal()
    group.tick(3, 2 * ELECTION)
    group.tick(1)

    assert group.leaders() == [1]
    assert {raft.term for raft in group.rafts.values()} == {2}


def test_a_node_stuck_in_a_later_term_is_freed() -> None:
    """(TestFreeStuckCandidateWithCheckQuorum, TestDisruptiveFollower,
    TestPreVoteMigrationWithFreeStuckPreCandidate)
    """
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    for _ in range(3):
        group[3]._roles._ask_for_votes(is_pre=False)  # noqa: SLF001
    group.settle()
    group.heal()
    group.tick(1)
    group.expire_leases()
    group[1].campaign()
    group.settle()

    assert group.leaders() == [1]
    assert {raft.term for raft in group.rafts.values()} == {group[3].term}


def test_a_node_with_an_earlier_term_can_win() -> None:
    """(TestNodeWithSmallerTermCanCompleteElection, TestPreVoteMigrationCanCompleteElection)"""
    group = Group(1, 2, 3)
    group.isolate(3)
    group.elect(1)
    group.elect(2)
    group.heal()
    group.isolate(2)
    group.expire_leases()
    group[3].campaign()
    group.settle()
    assert group[3].role is FOLLOWER
    group.expire_leases()
    group[1].campaign()
    group.settle()

    assert group[1].role is LEADER


def test_a_leader_or_a_learner_does_not_campaign() -> None:
    """(TestCampaignWhileLeader, TestPreCampaignWhileLeader, TestLearnerElectionTimeout,
    TestLearnerCampaign, TestNonPromotableVoterWithCheckQuorum, TestPromotable)
    """
    group = Group(1)
    group.elect(1)
    group[1].campaign()
    assert group[1].role is LEADER

    for state in (stored([1], learners=[2]), stored([1])):
        raft = raft_of(2, state)
        for _ in range(3 * ELECTION):
            raft.tick()
        raft.campaign()
        raft.step(message(1, 2, 1, TimeoutNow()))
        assert raft.role is FOLLOWER


def test_a_learner_votes_because_it_may_be_a_voter_already() -> None:
    """(TestLearnerCanVote)"""
    raft = raft_of(2, stored([1], learners=[2]))
    raft.step(message(1, 2, 2, vote(index=5, term=2)))

    assert bodies(raft) == [granted()]


@pytest.mark.parametrize("is_known", [False, True])
def test_who_has_not_applied_a_committed_change_does_not_campaign(*, is_known: bool) -> None:
    """(TestConfChangeCheckBeforeCampaign, TestConfChangeV2CheckBeforeCampaign)

    It would count with a membership two changes ago, whose majorities need not meet today's.
    """
    raft = raft_of(1)
    change = encode_change(MembershipChange(ChangeKind.REMOVE, PeerId(2)))
    appended = Append(
        LogIndex(1),
        Term(1),
        LogIndex(2 if is_known else 1),
        (entry(2, 1, change, EntryKind.CHANGE),),
    )
    raft.step(message(3, 1, 1, appended))
    effects = raft.take_effects()
    raft.persisted(effects)
    raft.campaign()

    assert raft.role is (FOLLOWER if is_known else PRE)


def test_an_answer_of_a_follower_to_no_election_is_ignored() -> None:
    """(TestStateTransition, TestRecvMsgVote)"""
    raft = raft_of(1)
    raft.step(message(2, 1, 1, granted()))
    raft.step(message(2, 1, 1, HeartbeatReply()))

    assert raft.role is FOLLOWER
    assert raft.leadership.leader == NO_PEER


def test_refusals_of_a_majority_end_a_candidacy() -> None:
    """(TestLeaderElectionInOneRoundRPC, TestDuelingCandidates)"""
    raft = candidate()
    raft.step(message(2, 1, 2, granted(yes=False)))
    raft.step(message(2, 1, 2, granted(yes=True)))
    assert raft.role is CANDIDATE
    raft.step(message(3, 1, 2, granted(yes=False)))

    assert raft.role is FOLLOWER
