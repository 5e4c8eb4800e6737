"""Who votes on the metadata: one change at a time, and never one after which nothing is decided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.base.cluster_limits import VOTERS_MAX
from goqueue.core.cluster.voters import QuorumChange, QuorumStep, QuorumView, next_change
from goqueue.core.raft.messages import PeerId

Peers = frozenset[PeerId]


def peers(*numbers: int) -> Peers:
    return frozenset(PeerId(one) for one in numbers)


def view(
    voters: Peers,
    learners: Peers = frozenset(),
    *,
    joining: Peers = frozenset(),
    gone: Peers = frozenset(),
    dead: Peers = frozenset(),
    leader: int = 1,
) -> QuorumView:
    members = voters | learners
    return QuorumView(
        leader=PeerId(leader),
        voters=voters,
        learners=learners,
        wanted=(members | joining) - gone,
        gone=gone,
        active=members - dead,
        current=learners - dead,
        alive=members - dead,
    )


CASES = {
    "three are enough for themselves": (view(peers(1, 2, 3)), None),
    "who joins learns": (view(peers(1, 2, 3), joining=peers(4)), (QuorumStep.ADD, 4)),
    "one more would make an even number": (view(peers(1, 2, 3), peers(4)), None),
    "two more make five": (view(peers(1, 2, 3), peers(4, 5)), (QuorumStep.PROMOTE, 4)),
    "the second of two": (view(peers(1, 2, 3, 4), peers(5)), (QuorumStep.PROMOTE, 5)),
    "five are the most": (view(peers(1, 2, 3, 4, 5), peers(6, 7)), None),
    "two get a third": (view(peers(1, 2), peers(3)), (QuorumStep.PROMOTE, 3)),
    "a replacement votes before its predecessor goes": (
        view(peers(1, 2, 3), peers(4), gone=peers(3), dead=peers(3)),
        (QuorumStep.PROMOTE, 4),
    ),
    "a dead voter goes": (
        view(peers(1, 2, 3), gone=peers(3), dead=peers(3)),
        (QuorumStep.REMOVE, 3),
    ),
    "a live voter stays where those left could not decide": (
        view(peers(1, 2, 3), gone=peers(3), dead=peers(2)),
        None,
    ),
    "the dead go first": (
        view(peers(1, 2, 3, 4, 5), gone=peers(2, 5), dead=peers(5)),
        (QuorumStep.REMOVE, 5),
    ),
    "a leader hands over first": (
        view(peers(1, 2, 3), gone=peers(1)),
        (QuorumStep.HAND_OVER, 2),
    ),
    "four become three": (view(peers(1, 2, 3, 4)), (QuorumStep.DEMOTE, 4)),
    "of four, the dead one": (view(peers(1, 2, 3, 4), dead=peers(2)), (QuorumStep.DEMOTE, 2)),
    "two stay two": (view(peers(1, 2)), None),
    "the last voter stays": (view(peers(1), gone=peers(1)), None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_next_change(name: str) -> None:
    """Policy: up to five voters, an odd number of them, given before they are taken."""
    found, wanted = CASES[name]
    assert next_change(found) == (None if wanted is None else QuorumChange(*wanted))  # type: ignore[arg-type]


def carried_out(before: QuorumView, change: QuorumChange, *, dead: Peers) -> QuorumView:
    step, peer = change
    voters, learners, leader = set(before.voters), set(before.learners), before.leader
    match step:
        case QuorumStep.HAND_OVER:
            leader = peer
        case QuorumStep.ADD:
            learners.add(peer)
        case QuorumStep.PROMOTE:
            learners.remove(peer)
            voters.add(peer)
        case QuorumStep.DEMOTE:
            voters.remove(peer)
            learners.add(peer)
        case QuorumStep.REMOVE:
            voters.discard(peer)
            learners.discard(peer)
    return view(
        frozenset(voters),
        frozenset(learners),
        joining=frozenset(before.wanted),
        gone=frozenset(before.gone & (voters | learners)),
        dead=dead,
        leader=leader,
    )


numbers = st.frozensets(st.integers(1, 9).map(PeerId), max_size=9)


@given(voters=numbers, joining=numbers, gone=numbers, dead=numbers)
def test_changes_end_with_a_quorum_that_decides(
    voters: Peers, joining: Peers, gone: Peers, dead: Peers
) -> None:
    """Whatever joins, goes and dies: each change leaves a live majority, and they end."""
    voters |= peers(1)
    dead -= peers(1)
    if len(voters - dead) <= len(voters) // 2:
        return
    now = view(voters, joining=joining - voters, gone=gone & voters, dead=dead)
    for _ in range(40):
        change = next_change(now)
        if change is None:
            break
        before, now = now, carried_out(now, change, dead=dead)
        assert len(now.voters & now.active) > len(now.voters) // 2, (before, change)
        assert len(now.voters) <= max(VOTERS_MAX + 1, len(before.voters))
        assert now.leader in now.voters
    else:
        pytest.fail(f"no end: {now}")
    assert not now.wanted - now.voters - now.learners
