"""Reads and handing over: scenarios of etcd/raft's tests, by their names."""

import pytest

from goqueue.base.errors import InvalidRequestError, NotLeaderError
from goqueue.core.raft.messages import (
    AppendReply,
    ChangeKind,
    MembershipChange,
    PeerId,
    RaftRole,
    ReadReply,
    ReadRequest,
    TimeoutNow,
)
from tests.core.raft.group import ELECTION, Group, behind, bodies, message, raft_of

LEADER, FOLLOWER = RaftRole.LEADER, RaftRole.FOLLOWER
TWO, THREE, FOUR = PeerId(2), PeerId(3), PeerId(4)


def test_a_read_waits_for_a_majority() -> None:
    """(TestReadOnlyOptionSafe, TestRawNodeReadIndex, TestReadOnlyWithLearner)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"x")
    for number in (1, 2, 3):
        assert group[number].read(number)
        group.settle()
        assert [(one.context, one.index) for one in group.reads[number]] == [(number, 3)]
    group.isolate(1)
    group[1].read(9)
    group.settle()

    assert len(group.reads[1]) == 1


def test_one_follower_of_four_confirms_no_read() -> None:
    """(TestReadOnlyOptionSafe)"""
    group = Group(1, 2, 3, 4, 5)
    group.elect(1)
    for number in (3, 4, 5):
        group.isolate(number)
    group[1].read(9)
    group.settle()
    assert not group.reads[1]
    group.heal()
    group.tick(1)

    assert [one.context for one in group.reads[1]] == [9]


def test_a_read_of_a_new_leader_waits_for_its_empty_entry() -> None:
    """(TestReadOnlyForNewLeader) Before it the leader may not know what is committed."""
    group = Group(1, 2, 3)
    group.ignored = (AppendReply,)
    group[1].campaign()
    group.settle()
    group[1].read(5)
    group.settle()
    assert not group.reads[1]
    group.heal()
    group.tick(1, 2)

    assert [(one.context, one.index) for one in group.reads[1]] == [(5, 2)]


def test_an_old_leader_answers_no_read() -> None:
    """(TestNodeReadIndexToOldLeader)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(1)
    group.elect(2)
    group.cut = {(1, 2), (2, 1), (1, 3)}
    group[1].read(7)
    group.settle()

    assert not group.reads[1]


def test_reads_are_confirmed_together() -> None:
    """(TestReadOnlyDuplicateRequest, TestRaftFreesReadOnlyMem)"""
    group = Group(1, 2, 3)
    group.elect(1)
    for context in (1, 1, 2):
        group[1].read(context)
    group.settle()

    assert [one.context for one in group.reads[1]] == [1, 1, 2]
    assert group[1].leader is not None
    assert group[1].leader.reads.round == 0


def test_without_a_leader_there_are_no_reads() -> None:
    """(TestReadOnlyForNewLeader)"""
    raft = raft_of(1)
    assert not raft.read(1)
    raft.step(message(2, 1, 1, ReadRequest(1)))

    assert bodies(raft, ReadReply) == []


# Handing over


def test_leadership_goes_to_a_node_that_has_everything() -> None:
    """(TestLeaderTransferToUpToDateNode, TestLeaderTransferWithCheckQuorum,
    TestLeaderTransferBack)
    """
    group = Group(1, 2, 3)
    group.elect(1)
    for source, target in ((1, 2), (2, 1)):
        group[source].transfer(PeerId(target))
        group.settle()

        assert group.leaders() == [target]


def test_leadership_waits_for_a_slow_node() -> None:
    """(TestLeaderTransferToSlowFollower, TestLeaderTransferAfterSnapshot)"""
    group = behind()
    group.heal()
    group[1].transfer(THREE)
    group.settle()
    group.tick(1, 3)

    assert group.leaders() == [3]


def test_leadership_is_not_given_to_itself_or_to_strangers() -> None:
    """(TestLeaderTransferToSelf, TestLeaderTransferToNonExistingNode, TestTransferNonMember)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group[1].transfer(PeerId(1))
    with pytest.raises(InvalidRequestError):
        group[1].transfer(PeerId(9))
    group.settle()
    assert group.leaders() == [1]

    stranger = raft_of(4)
    stranger.step(message(1, 4, 1, TimeoutNow()))
    assert stranger.role is FOLLOWER


def test_a_transfer_is_given_up_after_a_while() -> None:
    """(TestLeaderTransferTimeout, TestLeaderTransferIgnoreProposal)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    group[1].transfer(THREE)
    with pytest.raises(NotLeaderError):
        group[1].propose([b"x"])
    group[1].transfer(PeerId(1))
    group.propose(1, b"w")
    group[1].transfer(THREE)
    group.tick(1, ELECTION)

    group.propose(1, b"x")
    assert group.leaders() == [1]


def test_another_transfer_takes_the_place_of_the_first() -> None:
    """(TestLeaderTransferSecondTransferToAnotherNode, ...ToSameNode)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    group[1].transfer(THREE)
    group[1].transfer(THREE)
    group[1].transfer(TWO)
    group.settle()

    assert 2 in group.leaders()


def test_a_transfer_ends_with_the_vote_of_its_target() -> None:
    """(TestLeaderTransferRemoveNode, TestLeaderTransferDemoteNode)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.ignored = (TimeoutNow,)
    group[1].propose_change(MembershipChange(ChangeKind.REMOVE, THREE))
    group[1].transfer(THREE)
    group.settle()
    assert group[1].leader is not None

    assert group[1].leader.transferee == 0


def test_a_later_term_ends_a_transfer() -> None:
    """(TestLeaderTransferReceiveHigherTermVote)"""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(3)
    group[1].transfer(THREE)
    group.expire_leases()
    group[2].campaign()
    group.settle()

    assert group.leaders() == [2]
