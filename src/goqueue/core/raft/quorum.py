"""Majorities of voters, and memberships that change by one node at a time.

Shape: calculator. Any majority of a membership shares a node with any majority of its neighbour, so
no joint membership is needed as long as one change is under way at a time.
"""

from collections.abc import Callable, Mapping

import msgspec

from goqueue.base.cluster_limits import RAFT_NODES_MAX
from goqueue.core.raft.messages import (
    ChangeKind,
    Entry,
    Membership,
    MembershipChange,
    PeerId,
)

_decode = msgspec.msgpack.Decoder(MembershipChange).decode
encode_change = msgspec.msgpack.Encoder().encode


def majority_index(membership: Membership, acked: Callable[[PeerId], int]) -> int:
    """Return the highest number that a majority of the voters has reached; 0 without voters."""
    reached = sorted((acked(node) for node in membership.voters), reverse=True)
    return reached[len(reached) // 2] if reached else 0


def is_majority(membership: Membership, count: int) -> bool:
    """Return True if so many voters decide."""
    return count > len(membership.voters) // 2


def outcome(membership: Membership, votes: Mapping[PeerId, bool]) -> bool | None:
    """Return True for a won election, False for one that is lost, None while it is open."""
    granted = sum(votes.get(node, False) for node in membership.voters)
    if is_majority(membership, granted):
        return True
    silent = sum(node not in votes for node in membership.voters)
    return None if is_majority(membership, granted + silent) else False


def change_in(entry: Entry) -> MembershipChange:
    """Return the change that an entry carries."""
    return _decode(entry.data)


def changed(membership: Membership, change: MembershipChange) -> Membership | None:
    """Return what a change makes of a membership; None if it had no voter or too many members."""
    node, was_voter = change.node, change.node in membership.voters
    voters, learners = set(membership.voters) - {node}, set(membership.learners) - {node}
    recovering, lives = set(membership.recovering) - {node}, dict(membership.lives)
    match change.kind:
        case ChangeKind.ADD_VOTER:
            voters.add(node)
        case ChangeKind.ADD_LEARNER:
            learners.add(node)
            if change.life:
                lives[node] = change.life
                if was_voter or node in membership.recovering:
                    recovering.add(node)
        case ChangeKind.REMOVE:
            lives.pop(node, None)
    if not voters or len(voters) + len(learners) > RAFT_NODES_MAX:
        return None
    return Membership(
        tuple(sorted(voters)),
        tuple(sorted(learners)),
        tuple(sorted(recovering)),
        tuple(sorted(lives.items())),
    )
