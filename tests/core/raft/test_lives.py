"""A node that lost data promises nothing until the others know, and gets its vote back."""

from goqueue.core.raft.messages import (
    AppendReply,
    HardState,
    Heartbeat,
    HeartbeatReply,
    LogIndex,
    Membership,
    PeerId,
    RaftRole,
    Term,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from goqueue.core.raft.raft import Raft
from tests.core.raft.group import ELECTION, Group, finish, message, raft_of, said, stored

LEADER, FOLLOWER = RaftRole.LEADER, RaftRole.FOLLOWER
TWO, THREE, FOUR = PeerId(2), PeerId(3), PeerId(4)


def damaged(raft: Raft, life: int) -> Raft:
    """Return a node that has lost its votes and its log but for the founding."""
    voters = raft.membership.voters
    return raft_of(raft.node, stored(voters, hard=HardState(Term(1), life=life)))


def test_a_node_that_lost_data_gives_no_vote() -> None:
    """It may have voted in that term, and not know it."""
    raft = damaged(raft_of(1), 7)
    for is_pre in (False, True):
        request = VoteRequest(
            is_pre=is_pre, is_transfer=True, last_index=LogIndex(9), last_term=Term(9)
        )
        raft.step(message(2, 1, 9, request))
    raft.step(message(2, 1, 1, TimeoutNow()))
    for _ in range(5 * ELECTION):
        raft.tick()
    answers = said(raft)

    # But it says what it knows to be committed, in the terms the candidates are in.
    assert [one.term for one in answers] == [9, 8]
    assert [one.body for one in answers] == [
        VoteReply(is_pre=is_pre, is_granted=False, commit=LogIndex(1), commit_term=Term(1))
        for is_pre in (False, True)
    ]
    assert raft.term == 1
    assert raft.is_quarantined


def test_a_node_that_lost_data_is_in_no_majority() -> None:
    """Neither for entries nor for reads nor for the leader's check of its quorum."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(2)
    group.rafts[3] = damaged(group[3], 7)
    commit = group[1].log.commit
    group.tick(1, 2)
    group.propose(1, b"x")
    group[1].read(5)
    group.settle()
    assert group[3].log.last_index == group[1].log.last_index
    assert group[1].log.commit == commit
    assert not group.reads[1]
    group.tick(1, 2 * ELECTION)

    assert group[1].role is FOLLOWER


def test_a_node_that_lost_data_gets_its_vote_back() -> None:
    """The others take it, the node catches up, and the leader gives it back."""
    group = Group(1, 2, 3)
    group.elect(1)
    for at in range(5):
        group.propose(1, b"%d" % at)
    group.rafts[3] = damaged(group[3], 7)
    group.tick(1, 5)

    assert not group[3].is_quarantined
    assert group[3].log.commit == group[1].log.commit
    assert group[1].membership == Membership((PeerId(1), TWO, THREE), lives=((THREE, 7),))
    group.isolate(2)
    group.propose(1, b"with the third")
    assert group[1].log.commit == group[1].log.last_index


def test_what_a_node_said_before_it_lost_data_counts_no_longer() -> None:
    """A late reply of an earlier life says nothing of this one."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.isolate(2)
    group.rafts[3] = damaged(group[3], 7)
    group.tick(1)
    group[1].propose([b"x"])
    finish(group[1])
    commit = group[1].log.commit
    group[1].step(message(3, 1, group[1].term, AppendReply(group[1].log.last_index)))
    group[1].step(message(3, 1, group[1].term, HeartbeatReply()))

    assert group[1].log.commit == commit


def test_a_heartbeat_for_an_earlier_life_commits_nothing() -> None:
    """The leader speaks of entries that the node no longer has, or has others in place of."""
    state = stored(terms=[2, 2, 2], hard=HardState(Term(3), life=7))
    raft = raft_of(1, state)
    raft.step(message(2, 1, 3, Heartbeat(LogIndex(4))))
    assert raft.log.commit == 1
    raft.step(message(2, 1, 3, Heartbeat(LogIndex(2), life=7)))

    assert raft.log.commit == 2


def test_a_learner_that_lost_data_stays_a_learner() -> None:
    """It had no vote to be given back."""
    states = {1: stored([1], learners=[2]), 2: stored([1], learners=[2])}
    group = Group(1, 2, states=states)
    group.elect(1)
    lost = stored([1], learners=[2], hard=HardState(Term(1), life=3))
    group.rafts[2] = raft_of(2, lost)
    group.tick(1, 5)

    assert group[1].membership == Membership((PeerId(1),), (TWO,), lives=((TWO, 3),))
    assert not group[2].is_quarantined
