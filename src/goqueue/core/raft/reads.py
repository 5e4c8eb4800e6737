"""Reads that wait until a majority has confirmed the leader.

Shape: stepper. Each read has a number. A heartbeat carries the last one, and an answer confirms
all reads up to that: the node knew no later leader when they had been asked for.
"""

from collections import deque
from collections.abc import Iterator

from goqueue.base.cluster_limits import RAFT_READS_MAX
from goqueue.core.raft.messages import LogIndex, Membership, PeerId
from goqueue.core.raft.quorum import majority_index

Waiting = tuple[PeerId, int, LogIndex]


class PendingReads:
    """The reads of one leader, in the order they came."""

    def __init__(self, own: PeerId) -> None:
        self._own = own
        self._postponed: list[tuple[PeerId, int]] = []
        """Reads that came before an entry of the leader's term was committed."""
        self._waiting: deque[Waiting] = deque()
        self._confirmed = 0
        self._acks: dict[PeerId, int] = {}

    @property
    def is_full(self) -> bool:
        """Return True if no more reads may wait."""
        return len(self._waiting) + len(self._postponed) >= RAFT_READS_MAX

    @property
    def round(self) -> int:
        """The number of the last read that waits; 0 if none does."""
        return self._confirmed + len(self._waiting) if self._waiting else 0

    def postpone(self, node: PeerId, context: int) -> None:
        """Keep a read until the leader knows what is committed."""
        self._postponed.append((node, context))

    def take_postponed(self) -> list[tuple[PeerId, int]]:
        """Return the reads that were postponed."""
        postponed, self._postponed = self._postponed, []
        return postponed

    def add(self, node: PeerId, context: int, commit: LogIndex) -> None:
        """Let a read wait that must see what is committed now."""
        self._waiting.append((node, context, commit))
        self._acks[self._own] = self.round

    def ack(self, node: PeerId, read_round: int) -> None:
        """Note that a node has confirmed the leader."""
        self._acks[node] = max(self._acks.get(node, 0), read_round)

    def forget(self, node: PeerId) -> None:
        """Count a node no longer."""
        self._acks.pop(node, None)

    def confirmed(self, membership: Membership) -> Iterator[Waiting]:
        """Take the reads that a majority has confirmed."""
        confirmed = majority_index(membership, lambda node: self._acks.get(node, 0))
        while self._waiting and self._confirmed < confirmed:
            self._confirmed += 1
            yield self._waiting.popleft()
