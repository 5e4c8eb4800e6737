"""Which nodes vote on the metadata: the next change of the quorum's members, one at a time.

Shape: calculator. Nodes that join learn first and get a vote when they have everything, up to five
voters and to an odd number of them: an even number loses no more nodes than the odd one below it.
A vote is given before one is taken, and none is taken where those left could not decide.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from goqueue.base.cluster_limits import VOTERS_MAX
from goqueue.core.raft.messages import PeerId

EVEN_MIN = 4
"""From so many voters on, an even number is one too many; two are kept, as two copies."""

Peers = AbstractSet[PeerId]
_NONE: Peers = frozenset()


class QuorumStep(Enum):
    """What is to be done to one member of the quorum."""

    ADD = "add"
    """Let it learn."""
    PROMOTE = "promote"
    """Give it a vote."""
    DEMOTE = "demote"
    """Take its vote, and let it go on learning."""
    REMOVE = "remove"
    HAND_OVER = "hand over"
    """Let it lead, because the leader itself is to be removed."""


class QuorumChange(NamedTuple):
    """The next change."""

    step: QuorumStep
    peer: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumView:
    """The quorum as its leader sees it."""

    leader: PeerId
    voters: Peers
    learners: Peers
    wanted: Peers
    """Members of registered nodes that are to stay."""
    gone: Peers = _NONE
    """Members that are to be removed, and hold nothing any more."""
    recovering: Peers = _NONE
    """Learners that lost data; they get their vote back by themselves."""
    active: Peers = _NONE
    """Voters that answer and whose answers count, the leader among them."""
    current: Peers = _NONE
    """Learners that answer and have everything."""
    alive: Peers = _NONE
    """Members that are heard of."""
    is_by_majority: bool = field(default=True)
    """Whether a majority of the voters decides; otherwise any of them may lead."""


def next_change(view: QuorumView) -> QuorumChange | None:
    """Return what should change next, None if all is as it should be, or nothing can be."""
    members = view.voters | view.learners
    joining = view.wanted - members
    if joining:
        return QuorumChange(QuorumStep.ADD, min(joining))
    promoted = _promoted(view)
    if promoted is not None:
        return QuorumChange(QuorumStep.PROMOTE, promoted)
    return _removal(view) or _demotion(view)


def may_lose(view: QuorumView, voter: PeerId) -> bool:
    """Return True if the quorum can decide without a voter."""
    left = view.voters - {voter}
    active = len(left & view.active)
    return active > len(left) // 2 if view.is_by_majority else active > 0


def _staying(view: QuorumView) -> Peers:
    """Return the voters there will be, those that get their vote back among them."""
    return (view.voters | view.recovering) - view.gone


def _promoted(view: QuorumView) -> PeerId | None:
    """Return the learner that gets a vote: one makes an even number odd, two keep it odd."""
    ready = (view.learners & view.current) - view.gone - view.recovering
    count = len(_staying(view))
    needed = 1 if count % 2 == 0 else 2
    is_full = count + needed > VOTERS_MAX or len(view.voters) > VOTERS_MAX
    if len(ready) < needed or is_full:
        return None
    return min(ready)


def _removal(view: QuorumView) -> QuorumChange | None:
    gone = view.gone & view.learners
    if gone:
        return QuorumChange(QuorumStep.REMOVE, min(gone))
    dead_first = sorted(view.gone & view.voters, key=lambda one: (one in view.active, one))
    for voter in dead_first:
        if not may_lose(view, voter):
            continue
        if voter != view.leader:
            return QuorumChange(QuorumStep.REMOVE, voter)
        heirs = (view.voters & view.active) - view.gone
        return QuorumChange(QuorumStep.HAND_OVER, min(heirs)) if heirs else None
    return None


def _demotion(view: QuorumView) -> QuorumChange | None:
    """Return the voter too many, where no learner could make the number odd."""
    count = len(view.voters)
    may_grow = count < VOTERS_MAX and view.learners & view.alive
    if count < EVEN_MIN or count % 2 or may_grow or view.recovering or view.gone:
        return None
    dead_first = sorted(view.voters - {view.leader}, key=lambda one: (one in view.active, -one))
    return next(
        (QuorumChange(QuorumStep.DEMOTE, one) for one in dead_first if may_lose(view, one)), None
    )
