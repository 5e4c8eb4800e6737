"""The seam to whatever keeps a cluster's metadata in one order on all nodes.

``Quorum`` (``runtime/cluster/quorum.py``) is the embedded implementation. Whatever implements
``Consensus`` passes ``tests/runtime/cluster/consensus_contract.py``:

- every node applies the same entries in the same order, each once, from the snapshot it was
  restored from on;
- ``propose`` returns when the entry is applied on this node. ``NotLeaderError`` means that it is
  not and never will be applied; ``DeadlineExceededError`` that it may or may not be, now or later;
- behind ``barrier`` this node has applied all that was applied anywhere when it was called.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from goqueue.core.raft.messages import PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """Who leads, as far as a node knows."""

    leader: PeerId | None
    term: int
    """A later leader has a greater term; two leaders never have the same."""
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumMembers:
    """Who takes part. Learners get every entry and have no vote."""

    voters: Sequence[PeerId]
    learners: Sequence[PeerId]
    recovering: Sequence[PeerId] = ()
    """Learners that lost data and get their vote back when they have everything."""
    active: Sequence[PeerId] = ()
    """Members that answer and whose answers count; known to the leader only."""
    is_by_majority: bool = True
    """Whether a majority of the voters decides; otherwise any of them may lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a proposal."""

    index: int
    """Its place in the order of all proposals; it only grows."""
    result: object
    """What ``StateMachine.apply`` returned on this node."""


class StateMachine(Protocol):
    """What the quorum decides about. Called in the event loop, one call at a time."""

    def apply(self, index: int, data: bytes) -> object:
        """Apply one entry. Must not fail, and do the same on every node."""
        ...

    def snapshot(self) -> bytes:
        """Return everything that was applied, in a form that ``restore`` understands."""
        ...

    def restore(self, data: bytes) -> None:
        """Replace everything by a snapshot, which may have been taken on another node."""
        ...

    def leadership_changed(self, leading: Leading) -> None:
        """Learn that another node leads, or none."""
        ...


class Consensus(Protocol):
    """Proposals in, the same order of entries out on every node."""

    @property
    def leading(self) -> Leading:
        """Who leads, as far as this node knows. Only ``barrier`` is sure of it."""
        ...

    @property
    def members(self) -> QuorumMembers:
        """Who takes part, as far as this node has applied it."""
        ...

    async def propose(self, data: bytes) -> Outcome:
        """Have an entry applied on all nodes; only the leader can."""
        ...

    async def barrier(self) -> int:
        """Return an index when all before it is applied here that was applied anywhere."""
        ...

    async def add_learner(self, peer: PeerId) -> None:
        """Let a node take part without a vote, or take its vote; only the leader can."""
        ...

    async def promote(self, peer: PeerId) -> None:
        """Give a node a vote; only the leader can."""
        ...

    async def remove(self, peer: PeerId) -> None:
        """Let a node no longer take part; only the leader can."""
        ...

    async def transfer(self, peer: PeerId) -> None:
        """Make another voter the leader; only the leader can. Returns when it leads."""
        ...

    async def start(self) -> None:
        """Begin to take part."""
        ...

    async def stop(self) -> None:
        """Take part no longer; what waits ends with an error."""
        ...


ConsensusMaker = Callable[[PeerId, Sequence[PeerId], StateMachine], Consensus]
"""Given the number of a node, those of all founders and the machine that entries are applied to."""
