"""The members as a leader sees them, itself included.

Shape: stepper. A member that lost data counts in no majority until the others have taken its vote.
"""

from goqueue.core.raft.messages import LogIndex, PeerId
from goqueue.core.raft.progress import FollowerProgress, Mode
from goqueue.core.raft.quorum import is_majority, majority_index
from goqueue.core.raft.state import NodeState


class Followers(dict[PeerId, FollowerProgress]):
    """How far each member is, in the order of their numbers."""

    def __init__(self, state: NodeState) -> None:
        super().__init__()
        self._state = state
        self.follow_membership()

    def follow_membership(self) -> None:
        """Keep exactly those who are members now."""
        state = self._state
        kept = dict(self)
        self.clear()
        for node in state.membership.nodes:
            self[node] = kept.get(node) or self._newcomer(node, is_active=bool(kept))
        own = self.get(state.node)
        if own is not None:
            own.is_active, own.mode, own.life = True, Mode.REPLICATE, state.life
            own.advance(state.log.stable)

    def _newcomer(self, node: PeerId, *, is_active: bool) -> FollowerProgress:
        """Begin at the end of the log. One that joins counts as heard of, and is sent an entry."""
        last_index = self._state.log.last_index
        progress = FollowerProgress(
            next_index=LogIndex(max(last_index, 1) if is_active else last_index + 1),
            window_max=self._state.config.window_max,
        )
        progress.is_active = is_active
        progress.life = self._state.membership.life_of(node)
        return progress

    def counts(self, node: PeerId) -> bool:
        """Return False for a node that lost data and whose promises therefore mean nothing."""
        return self[node].life == self._state.membership.life_of(node)

    @property
    def active(self) -> list[PeerId]:
        """The members that were heard of since the last count, and count."""
        return [node for node, one in self.items() if one.is_active and self.counts(node)]

    def has_active_majority(self) -> bool:
        """Return True if a majority was heard of since this was asked last."""
        own, membership = self._state.node, self._state.membership
        active = [node for node in self.active if node in membership.voters]
        for node, progress in self.items():
            if node != own:
                progress.is_active = False
                progress.count_snapshot()
        return is_majority(membership, len(active))

    def majority_match(self) -> LogIndex:
        """Return the last index that a majority of the voters has durably."""
        membership = self._state.membership
        return LogIndex(
            majority_index(
                membership, lambda node: self[node].match if self.counts(node) else LogIndex(0)
            )
        )
