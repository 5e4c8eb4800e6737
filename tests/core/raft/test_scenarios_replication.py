"""Replication: the scenarios of etcd/raft's own tests, whose names are in parentheses."""

import pytest

from goqueue.base.errors import NotLeaderError, OverloadedError
from goqueue.core.raft.messages import (
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
    VoteReply,
)
from goqueue.core.raft.progress import Mode
from goqueue.core.raft.raft import Raft
from tests.core.raft.group import (
    Group,
    bodies,
    entry,
    finish,
    message,
    raft_of,
    said,
    stored,
)

TWO, THREE = PeerId(2), PeerId(3)


def leading(raft: Raft) -> Raft:
    """Have node 1 of three win an election by the vote of node 2."""
    raft.campaign()
    finish(raft)
    raft.step(message(2, 1, raft.term + 1, VoteReply(is_pre=True, is_granted=True)))
    finish(raft)
    raft.step(message(2, 1, raft.term, VoteReply(is_pre=False, is_granted=True)))
    finish(raft)
    assert raft.role is RaftRole.LEADER
    return raft


def progress(raft: Raft, peer: PeerId = TWO) -> tuple[Mode, int, int]:
    assert raft.leader is not None
    one = raft.leader.progress[peer]
    return one.mode, one.match, one.next


def ack(raft: Raft, index: int, peer: int = 2) -> None:
    raft.step(message(peer, 1, raft.term, AppendReply(LogIndex(index))))


def test_a_new_leader_appends_an_empty_entry() -> None:
    """(TestLeaderStartReplication, TestLeaderCommitEntry; thesis 6.4)"""
    group = Group(1, 2, 3)
    group.elect(1)

    assert [one.kind for one in group[3].log.entries] == [EntryKind.EMPTY]
    assert group.commits() == {1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_majority_commits_what_is_proposed(count: int) -> None:
    """(TestProposal, TestLogReplication, TestCommit, TestLeaderAcknowledgeCommit)"""
    numbers = tuple(range(1, count + 1))
    group = Group(*numbers)
    group.elect(1)
    group.propose(1, b"a")
    group.propose(1, b"b", b"c")

    assert set(group.commits().values()) == {5}
    for number in numbers:
        data = [one.data for one in group.applied[number] if one.kind is EntryKind.DATA]
        assert data == [b"a", b"b", b"c"]


def test_without_a_majority_nothing_is_committed() -> None:
    """(TestProposal, TestRawNodeBoundedLogGrowthWithPartition)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(1)
    group.propose(1, b"alone")

    assert group.commits() == {1: 2, 2: 2, 3: 2}


def test_only_a_leader_takes_proposals() -> None:
    """(TestProposalByProxy, TestDisableProposalForwarding, TestNodeProposeWaitDropped)

    Our host forwards proposals itself, so a follower refuses.
    """
    group = Group(1, 2, 3)
    group.elect(1)
    with pytest.raises(NotLeaderError):
        group[2].propose([b"no"])


def test_a_leader_counts_its_own_entries_only_when_they_are_durable() -> None:
    """(TestLeaderMsgAppSelfAckAfterTermChange, TestSingleNodeCommit)"""
    raft = raft_of(1, stored([1]))
    raft.campaign()
    finish(raft)
    raft.propose([b"x"])
    effects = raft.take_effects()
    assert raft.log.commit == 2
    raft.persisted(effects)
    assert raft.log.commit == 3
    raft.applied(effects)
    (later,) = finish(raft)

    assert [one.data for one in later.committed] == [b"x"]


def test_a_leader_that_has_not_synced_is_no_part_of_the_majority() -> None:
    """(TestLeaderMsgAppSelfAckAfterTermChange) One follower and an unsynced leader are not two."""
    raft = leading(raft_of(1))
    ack(raft, 2)
    finish(raft)
    raft.propose([b"x"])
    effects = raft.take_effects()
    ack(raft, 3)
    assert raft.log.commit == 2
    raft.persisted(effects)

    assert raft.log.commit == 3


def test_a_leader_counts_no_more_than_one_write_covers() -> None:
    """(TestLeaderMsgAppSelfAckAfterTermChange) What came during a write is not durable by it."""
    raft = leading(raft_of(1))
    ack(raft, 2)
    finish(raft)
    raft.propose([b"x"])
    effects = raft.take_effects()
    raft.propose([b"y"])
    ack(raft, 4)
    raft.persisted(effects)

    assert raft.log.commit == 3


def test_a_change_of_the_membership_makes_nothing_durable() -> None:
    """(TestCommitAfterRemoveNode) When it comes into force, unsynced entries still do not count."""
    raft = leading(raft_of(1, stored([1, 2])))
    ack(raft, 2)
    finish(raft)
    raft.propose_change(MembershipChange(ChangeKind.ADD_LEARNER, PeerId(4)))
    effects = raft.take_effects()
    raft.persisted(effects)
    raft.applied(effects)
    ack(raft, 3)
    effects = raft.take_effects()
    raft.persisted(effects)
    raft.propose([b"unsynced"])
    ack(raft, 4)
    raft.applied(effects)
    assert raft.membership.learners == (4,)

    assert raft.log.commit == 3


def test_a_write_that_was_overtaken_is_not_taken_for_durable() -> None:
    """(testdata: async_storage_writes_append_aba_race)"""
    raft = raft_of(1)
    raft.step(message(2, 1, 2, Append(LogIndex(1), Term(1), LogIndex(1), (entry(2, 2, b"a"),))))
    effects = raft.take_effects()
    raft.step(message(3, 1, 3, Append(LogIndex(1), Term(1), LogIndex(1), (entry(2, 3, b"b"),))))
    raft.persisted(effects)
    raft.applied(effects)

    assert raft.log.stable == 1
    (later,) = finish(raft)
    assert [one.data for one in later.entries] == [b"b"]
    assert raft.log.stable == 2


def test_what_was_replaced_is_applied_when_the_replacement_is_durable() -> None:
    """(TestFollowerAppendEntries, TestNodeAdvance)"""
    raft = raft_of(1, stored(terms=[2, 2, 2], hard=HardState(Term(3))))
    finish(raft)
    raft.step(message(2, 1, 3, Append(LogIndex(1), Term(1), LogIndex(2), (entry(2, 3, b"n"),))))
    effects = raft.take_effects()
    assert not effects.committed
    raft.persisted(effects)
    raft.applied(effects)

    assert [one.data for one in raft.take_effects().committed] == [b"n"]


def test_a_leader_commits_entries_of_earlier_terms_only_with_one_of_its_own() -> None:
    """(TestLeaderOnlyCommitsLogFromCurrentTerm, TestCannotCommitWithoutNewTermEntry,
    TestCommitWithoutNewTermEntry, TestLeaderCommitPrecedingEntries; paper, figure 8)
    """
    raft = leading(raft_of(1, stored(terms=[2, 3])))
    assert raft.term == 4
    ack(raft, 2)
    assert raft.log.commit == 1
    ack(raft, 3)
    assert raft.log.commit == 1
    ack(raft, 4)

    assert raft.log.commit == 4


@pytest.mark.parametrize(
    "log",
    [[2], [2, 2], [2, 2, 2, 2], [2, 2, 3], [3, 3, 3, 3, 3], []],
)
def test_a_leader_makes_all_logs_like_its_own(log: list[int]) -> None:
    """(TestLeaderSyncFollowerLog, TestLeaderElectionOverwriteNewerLogs, ...PreVote,
    TestFastLogRejection)
    """
    mine = [2, 2, 4, 4, 4]
    states = {
        1: stored(terms=mine, hard=HardState(Term(5))),
        2: stored(hard=HardState(Term(5))),
        3: stored(terms=log, hard=HardState(Term(5))),
    }
    group = Group(1, 2, 3, states=states)
    group.elect(1)
    group.propose(1, b"more")

    assert group.logs()[3] == group.logs()[1] == [*mine, 6, 6]
    assert group.commits()[3] == group[1].log.last_index


def test_terms_are_skipped_when_logs_are_compared() -> None:
    """(TestFastLogRejection) A long tail of other terms costs two messages, not one an entry."""
    states = {
        1: stored(terms=[2] + [3] * 50 + [7], hard=HardState(Term(7))),
        2: stored(hard=HardState(Term(7))),
        3: stored(terms=[2] + [4] * 30 + [5] * 20, hard=HardState(Term(7))),
    }
    group = Group(1, 2, 3, states=states)
    group.isolate(2)
    group[1].campaign()
    group.settle()
    refusals = [
        one for one in group.heard if isinstance(one.body, AppendReply) and one.body.is_rejected
    ]

    assert group.logs()[3] == group.logs()[1]
    assert len(refusals) <= 3


@pytest.mark.parametrize(
    ("index", "term", "accepted"), [(1, 1, True), (3, 3, True), (3, 2, False), (9, 9, False)]
)
def test_an_append_must_fit(index: int, term: int, *, accepted: bool) -> None:
    """(TestFollowerCheckMsgApp, TestHandleMsgApp)"""
    raft = raft_of(1, stored(terms=[2, 3], hard=HardState(Term(9))))
    raft.step(message(2, 1, 9, Append(LogIndex(index), Term(term), LogIndex(1))))
    (reply,) = bodies(raft, AppendReply)

    assert isinstance(reply, AppendReply)
    assert reply.is_rejected is not accepted
    assert reply.index == index


@pytest.mark.parametrize(
    ("index", "terms", "expected"),
    [
        (3, [4], [2, 3, 4]),
        (2, [4, 4], [2, 4, 4]),
        (1, [2], [2, 3]),
        (1, [2, 3], [2, 3]),
        (1, [4], [4]),
    ],
)
def test_a_follower_replaces_only_what_conflicts(
    index: int, terms: list[int], expected: list[int]
) -> None:
    """(TestFollowerAppendEntries, TestLogReplicationWithReorderedMessage)"""
    raft = raft_of(1, stored(terms=[2, 3], hard=HardState(Term(4))))
    entries = tuple(entry(at, term, b"n") for at, term in enumerate(terms, index + 1))
    previous = raft.log.term_at(LogIndex(index))
    assert previous is not None
    raft.step(message(2, 1, 4, Append(LogIndex(index), previous, LogIndex(1), entries)))

    assert [one.term for one in raft.log.entries] == expected


def test_a_follower_commits_only_what_it_is_known_to_have() -> None:
    """(TestHandleMsgApp, TestFollowerCommitEntry)"""
    raft = raft_of(1, stored(terms=[2, 2, 2], hard=HardState(Term(2))))
    raft.step(message(2, 1, 2, Append(LogIndex(2), Term(2), LogIndex(4))))
    assert raft.log.commit == 2
    raft.step(message(2, 1, 2, Append(LogIndex(4), Term(2), LogIndex(4), (entry(5, 2, b"x"),))))

    assert raft.log.commit == 4


def test_a_heartbeat_moves_the_commit_index_and_never_back() -> None:
    """(TestHandleHeartbeat, TestRecvMsgBeat)"""
    raft = raft_of(1, stored(terms=[2, 2], hard=HardState(Term(2), commit=LogIndex(2))))
    raft.step(message(2, 1, 2, Heartbeat(LogIndex(3))))
    raft.step(message(2, 1, 2, Heartbeat(LogIndex(1))))

    assert raft.log.commit == 3
    assert bodies(raft) == [HeartbeatReply(), HeartbeatReply()]


def test_heartbeats_say_no_more_than_a_follower_has() -> None:
    """(TestBcastBeat, TestLeaderBcastBeat)"""
    raft = leading(raft_of(1))
    ack(raft, 2)
    finish(raft)
    raft.tick()
    sent = {one.to: one.body for one in said(raft)}

    assert sent == {2: Heartbeat(LogIndex(2)), 3: Heartbeat(LogIndex(0))}


def test_an_append_is_sent_again_after_a_heartbeat_is_answered() -> None:
    """(TestHandleHeartbeatResp, TestProgressResumeByHeartbeatResp, TestProgressPaused,
    TestMsgAppRespWaitReset, TestSendAppendForProgressProbe)
    """
    raft = leading(raft_of(1))
    raft.propose([b"a"])
    assert not [one for one in said(raft) if one.to == 3]
    raft.step(message(3, 1, raft.term, HeartbeatReply()))
    sent = [one.body for one in said(raft) if one.to == 3]

    assert sent == [Append(LogIndex(1), Term(1), LogIndex(1), tuple(raft.log.entries))]
    ack(raft, 3, peer=3)
    assert progress(raft, THREE) == (Mode.REPLICATE, 3, 4)


def test_appends_are_sent_ahead_as_far_as_the_window_reaches() -> None:
    """(TestSendAppendForProgressReplicate, TestProgressFlowControl, TestMsgAppFlowControlFull,
    TestMsgAppFlowControlMoveForward, TestMsgAppFlowControlRecvHeartbeat, TestLeaderIncreaseNext)
    """
    raft = leading(raft_of(1, window_max=3))
    ack(raft, 2)
    finish(raft)
    for at in range(6):
        raft.propose([b"%d" % at])
    sent = [one.body for one in said(raft) if one.to == 2 and isinstance(one.body, Append)]
    assert [len(one.entries) for one in sent] == [1, 1, 1]

    ack(raft, 4)
    sent = [one.body for one in said(raft) if one.to == 2 and isinstance(one.body, Append)]
    assert sum(len(one.entries) for one in sent) == 3

    raft.step(message(2, 1, raft.term, HeartbeatReply()))
    (probe,) = [one.body for one in said(raft) if one.to == 2]
    assert isinstance(probe, Append)
    assert not probe.entries


def test_large_appends_are_cut() -> None:
    """(TestAppendPagination, TestProgressFlowControl)"""
    raft = leading(raft_of(1, append_bytes_max=100))
    raft.propose([bytes(60)] * 4)
    ack(raft, 2)
    sizes = [
        len(one.body.entries)
        for one in said(raft)
        if one.to == 2 and isinstance(one.body, Append) and one.body.entries
    ]

    assert sizes == [1, 1, 1, 1]


def test_many_committed_entries_are_applied_in_portions() -> None:
    """(TestCommitPagination, TestRawNodeCommitPaginationAfterRestart, TestRawNodeConsumeReady)"""
    group = Group(1)
    group.elect(1)
    group[1].propose([b"x"] * 2_500)
    portions = [len(effects.committed) for effects in finish(group[1])]

    assert max(portions) == 1_000
    assert sum(portions) == 2_500


def test_proposals_beyond_the_bound_are_refused() -> None:
    """(TestUncommittedEntryLimit, TestRawNodeBoundedLogGrowthWithPartition)"""
    raft = leading(raft_of(1, uncommitted_bytes_max=100))
    ack(raft, 2)
    finish(raft)
    raft.propose([bytes(300)])
    with pytest.raises(OverloadedError):
        raft.propose([b"x"])
    finish(raft)
    ack(raft, 3)
    finish(raft)
    raft.propose([b"x"])

    assert raft.log.last_index == 4


def test_an_unreachable_follower_is_probed() -> None:
    """(TestRecvMsgUnreachable)"""
    raft = leading(raft_of(1))
    ack(raft, 2)
    for at in range(3):
        raft.propose([b"%d" % at])
    assert progress(raft) == (Mode.REPLICATE, 2, 6)
    raft.unreachable(TWO)

    assert progress(raft) == (Mode.PROBE, 2, 3)


def test_old_answers_of_followers_change_nothing() -> None:
    """(TestLeaderAppResp)"""
    raft = leading(raft_of(1))
    raft.propose([b"a", b"b"])
    ack(raft, 2)
    ack(raft, 4)
    ack(raft, 3)
    refusal = AppendReply(LogIndex(3), is_rejected=True, hint_index=LogIndex(1))
    raft.step(message(2, 1, raft.term, refusal))

    assert progress(raft)[:2] == (Mode.REPLICATE, 4)


def test_an_append_that_comes_late_cuts_nothing_off() -> None:
    """(TestLogReplicationWithReorderedMessage)"""
    raft = raft_of(1)
    first = Append(LogIndex(1), Term(1), LogIndex(1), (entry(2, 1, b"a"),))
    second = Append(LogIndex(1), Term(1), LogIndex(1), (entry(2, 1, b"a"), entry(3, 1, b"b")))
    raft.step(message(2, 1, 1, second))
    raft.step(message(2, 1, 1, first))

    assert raft.log.last_index == 3


def test_an_append_before_the_commit_index_is_answered_with_it() -> None:
    """(TestHandleMsgApp, TestFastLogRejection)"""
    raft = raft_of(1, stored(terms=[2, 2, 2], hard=HardState(Term(2), commit=LogIndex(3))))
    raft.step(message(2, 1, 2, Append(LogIndex(1), Term(1), LogIndex(1), (entry(2, 2, b"2"),))))

    assert bodies(raft) == [AppendReply(LogIndex(3))]


def test_a_restart_goes_on_with_what_is_durable() -> None:
    """(TestRawNodeRestart, TestNodeRestart, TestNodeRestartFromSnapshot)"""
    state = stored(terms=[2, 2], hard=HardState(Term(4), PeerId(3), LogIndex(2)))
    raft = raft_of(1, state)
    (effects,) = finish(raft)

    assert (raft.term, raft.hard_state.vote) == (4, 3)
    assert [one.index for one in effects.committed] == [2]
    assert effects.hard_state is None


def test_a_follower_that_was_away_catches_up() -> None:
    """(TestLogReplication, TestProgressLeader)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    for at in range(20):
        group.propose(1, b"%d" % at)
    group.heal()
    group.tick(1, 3)

    assert group.logs()[3] == group.logs()[1]
    assert group.commits()[3] == group.commits()[1]
