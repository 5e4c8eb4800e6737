"""Members and snapshots: scenarios of etcd/raft's tests, by their names."""

import pytest

from goqueue.base.errors import InvalidRequestError, NotLeaderError, OverloadedError
from goqueue.core.raft.messages import (
    Append,
    AppendReply,
    ChangeKind,
    HardState,
    InstallSnapshot,
    LogIndex,
    Membership,
    MembershipChange,
    PeerId,
    RaftRole,
    Snapshot,
    StoredState,
    Term,
)
from goqueue.core.raft.progress import Mode
from goqueue.core.raft.raft import Raft
from tests.core.raft.group import ELECTION, Group, behind, bodies, finish, message, raft_of, stored

LEADER, FOLLOWER = RaftRole.LEADER, RaftRole.FOLLOWER
TWO, THREE, FOUR = PeerId(2), PeerId(3), PeerId(4)


def change(group: Group, kind: ChangeKind, peer: int, by: int = 1) -> None:
    group[by].propose_change(MembershipChange(kind, PeerId(peer)))
    group.settle()


def newcomer(number: int) -> Raft:
    nothing = Snapshot(LogIndex(0), Term(0), Membership(), b"")
    state = StoredState(hard_state=HardState(), snapshot=nothing, boundary=(LogIndex(0), Term(0)))
    return raft_of(number, state)


# Members


def test_a_node_is_added_promoted_and_removed() -> None:
    """(TestAddNode, TestAddLearner, TestLearnerPromotion, TestRemoveNode, TestRemoveLearner,
    TestRaftNodes, TestRawNodeProposeAndConfChange, TestNodeProposeAddLearnerNode)
    """
    group = Group(1, 2, 3)
    group.elect(1)
    group.add(newcomer(4))
    change(group, ChangeKind.ADD_LEARNER, 4)
    assert (
        group[4].membership == group[1].membership == Membership((PeerId(1), TWO, THREE), (FOUR,))
    )
    change(group, ChangeKind.ADD_VOTER, 4)
    assert group[4].membership.voters == (1, 2, 3, 4)
    change(group, ChangeKind.REMOVE, 4)

    assert group[1].membership == Membership((PeerId(1), TWO, THREE))
    assert group[1].leader is not None
    assert list(group[1].leader.progress) == [1, 2, 3]


def test_adding_a_member_again_changes_nothing() -> None:
    """(TestRawNodeProposeAddDuplicateNode, TestNodeProposeAddDuplicateNode)"""
    group = Group(1, 2, 3)
    group.elect(1)
    before = group[1].membership
    change(group, ChangeKind.ADD_VOTER, 2)
    change(group, ChangeKind.ADD_VOTER, 2)

    assert group[1].membership == before


def test_one_change_is_under_way_at_a_time() -> None:
    """(TestStepConfig, TestStepIgnoreConfig)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(1)
    group[1].propose_change(MembershipChange(ChangeKind.REMOVE, THREE))
    with pytest.raises(OverloadedError):
        group[1].propose_change(MembershipChange(ChangeKind.REMOVE, TWO))


def test_a_new_leader_first_commits_what_it_found() -> None:
    """(TestNewLeaderPendingConfig) There might be a change among it."""
    group = Group(1, 2, 3)
    group.ignored = (AppendReply,)
    group[1].campaign()
    group.settle()
    with pytest.raises(OverloadedError):
        group[1].propose_change(MembershipChange(ChangeKind.REMOVE, TWO))
    group.heal()
    group.tick(1, 2)

    group[1].propose_change(MembershipChange(ChangeKind.REMOVE, TWO))


def test_the_last_voter_stays() -> None:
    """(confchange: simple_safety)"""
    group = Group(1)
    group.elect(1)
    with pytest.raises(InvalidRequestError):
        group[1].propose_change(MembershipChange(ChangeKind.REMOVE, PeerId(1)))


def test_fewer_voters_need_fewer_for_a_majority() -> None:
    """(TestCommitAfterRemoveNode)"""
    group = Group(1, 2)
    group.elect(1)
    group.isolate(2)
    group[1].propose([b"waits"])
    group.settle()
    assert group[1].log.commit == 2
    group.heal()
    change(group, ChangeKind.REMOVE, 2)
    group.isolate(2)
    group.propose(1, b"alone")

    assert group[1].log.commit == group[1].log.last_index


def test_a_leader_that_is_removed_steps_down_when_that_is_committed() -> None:
    """(testdata: confchange_v1_remove_leader_stepdown)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"x")
    change(group, ChangeKind.REMOVE, 1)
    assert group[1].role is FOLLOWER
    group.expire_leases()
    group[2].campaign()
    group.settle()

    assert group.leaders() == [2]
    assert group[2].membership.voters == (2, 3)


def test_nothing_follows_a_change_that_takes_the_leaders_vote() -> None:
    """Simulation: with one more entry on it alone, no later election would have a winner."""
    group = Group(1, 2)
    group.elect(1)
    group.isolate(1)
    group[1].propose_change(MembershipChange(ChangeKind.ADD_LEARNER, PeerId(1)))
    with pytest.raises(NotLeaderError):
        group[1].propose([b"x"])


def test_a_new_leader_knows_that_its_own_vote_is_about_to_be_taken() -> None:
    """The change was proposed by the leader before it."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.ignored = (AppendReply,)
    group[1].propose_change(MembershipChange(ChangeKind.REMOVE, TWO))
    group.settle()
    group.isolate(1)
    group.expire_leases()
    group[2].campaign()
    group.settle()
    assert group[2].role is LEADER
    with pytest.raises(NotLeaderError):
        group[2].propose([b"x"])
    group.ignored = ()
    group.tick(2, 2)

    assert group[2].role is FOLLOWER
    assert group[3].log.commit == group[2].log.last_index


def test_a_new_member_counts_as_heard_of_at_first() -> None:
    """(TestAddNodeCheckQuorum)"""
    group = Group(1)
    group.elect(1)
    change(group, ChangeKind.ADD_VOTER, 2)
    for _ in range(ELECTION - 1):
        group[1].tick()
    assert group[1].role is LEADER
    for _ in range(ELECTION + 1):
        group[1].tick()

    assert group[1].role is FOLLOWER


def test_a_learner_gets_the_log_and_counts_nowhere() -> None:
    """(TestLearnerLogReplication)"""
    states = {1: stored([1], learners=[2]), 2: stored([1], learners=[2])}
    group = Group(1, 2, states=states)
    group.elect(1)
    group.propose(1, b"x")
    assert group.commits() == {1: 3, 2: 3}
    group.isolate(2)
    group.propose(1, b"y")

    assert group[1].log.commit == 4


# Snapshots


def test_a_follower_behind_the_log_gets_a_snapshot() -> None:
    """(TestProvideSnap, TestSlowNodeRestore, TestRestore, TestRestoreFromSnapMsg,
    TestLearnerReceiveSnapshot, TestSnapshotSucceed)
    """
    group = behind()
    group.heal()
    group.tick(1, 3)

    assert [one.data for one in group.snapshots[3]] == [b"state"]
    assert group[3].log.applied == group[1].log.applied
    group.propose(1, b"after")
    assert group[3].log.last_index == group[1].log.last_index
    assert group[1].leader is not None
    assert group[1].leader.progress[THREE].mode is Mode.REPLICATE


def test_a_snapshot_is_not_sent_to_a_node_that_is_not_heard_of() -> None:
    """(TestIgnoreProvidingSnap)"""
    group = behind()
    assert group[1].leader is not None
    group[1].leader.progress[THREE].is_active = False
    group[1].leader.progress[THREE].is_paused = False
    group[1].propose([b"x"])

    assert not [one for one in bodies(group[1]) if isinstance(one, InstallSnapshot)]


def test_nothing_is_sent_beside_a_snapshot() -> None:
    """(TestSendingSnapshotSetPendingSnapshot, TestPendingSnapshotPauseReplication,
    TestSendAppendForProgressSnapshot)
    """
    group = behind()
    group.ignored = (InstallSnapshot,)
    group.cut = set()
    group.tick(1, 2)
    assert group[1].leader is not None
    assert group[1].leader.progress[THREE].mode is Mode.SNAPSHOT
    before = len(group.heard)
    group.propose(1, b"x")

    sent = [one for one in group.heard[before:] if one.to == 3]
    assert not [one for one in sent if isinstance(one.body, Append | InstallSnapshot)]


@pytest.mark.parametrize("is_ok", [False, True])
def test_after_a_snapshot_the_follower_is_probed(*, is_ok: bool) -> None:
    """(TestSnapshotFailure, TestSnapshotSucceed)"""
    group = behind()
    group.ignored = (InstallSnapshot,)
    group.cut = set()
    group.tick(1, 2)
    assert group[1].leader is not None
    group[1].snapshot_ended(THREE, is_ok=is_ok)
    progress = group[1].leader.progress[THREE]

    assert progress.mode is Mode.PROBE
    assert progress.is_paused
    assert progress.next == (group[1].log.snapshot.index if is_ok else progress.match) + 1


def test_an_append_reply_ends_the_wait_for_a_snapshot() -> None:
    """(TestSnapshotAbort)"""
    group = behind()
    group.ignored = (InstallSnapshot,)
    group.cut = set()
    group.tick(1, 2)
    assert group[1].leader is not None
    index = group[1].log.last_index
    group[1].step(message(3, 1, group[1].term, AppendReply(index)))

    assert group[1].leader.progress[THREE].mode is Mode.REPLICATE


def test_a_lost_snapshot_is_sent_again() -> None:
    """Ours: the network does not report losses."""
    group = behind()
    group.ignored = (InstallSnapshot,)
    group.cut = set()
    group.tick(1, 2)
    group.heal()
    group.tick(1, 3 * ELECTION)

    assert [one.data for one in group.snapshots[3]] == [b"state"]


def test_an_old_snapshot_is_ignored() -> None:
    """(TestRestoreIgnoreSnapshot)"""
    raft = raft_of(1, stored(terms=[2, 2, 2], hard=HardState(Term(2), commit=LogIndex(3))))
    members = raft.membership
    for index in (2, 3, 4):
        snapshot = Snapshot(LogIndex(index), Term(2), members, b"")
        raft.step(message(2, 1, 2, InstallSnapshot(snapshot)))

    # The last one is of an entry that is there: it only says that it is committed.
    assert raft.log.commit == 4
    assert raft.log.last_index == 4
    assert {effects.snapshot for effects in finish(raft)} == {None}


def test_a_snapshot_brings_its_membership() -> None:
    """(TestRestoreWithLearner, TestRestoreVoterToLearner, TestRestoreLearnerPromotion)"""
    raft = newcomer(3)
    members = Membership((PeerId(1), TWO), (THREE,))
    raft.step(message(1, 3, 4, InstallSnapshot(Snapshot(LogIndex(9), Term(3), members, b"s"))))
    effects = raft.take_effects()
    assert not raft.log.to_apply()
    raft.persisted(effects)
    raft.applied(effects)

    assert raft.membership == members
    assert raft.log.applied == 9


def test_while_a_snapshot_is_installed_there_is_no_election() -> None:
    """(TestRestore)"""
    raft = raft_of(1)
    snapshot = Snapshot(LogIndex(9), Term(3), raft.membership, b"s")
    raft.step(message(2, 1, 4, InstallSnapshot(snapshot)))
    raft.campaign()
    assert raft.role is FOLLOWER
    finish(raft)
    raft.campaign()

    assert raft.role is RaftRole.PRE_CANDIDATE
