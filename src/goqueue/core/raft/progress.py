"""What a leader knows of one follower, and how much it sends ahead of its replies.

Shape: stepper. A follower is in one of three modes:

    probe        one append at a time, until it is known where its log matches
    replicate    appends are sent ahead, as many as the window holds
    snapshot     a snapshot is on its way; nothing else is sent meanwhile
"""

from collections import deque
from enum import Enum

from goqueue.core.raft.messages import LogIndex


class Mode(Enum):
    """How a leader sends to a follower."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class FollowerProgress:
    """How far a follower is. ``match`` never goes back in a term, unless the follower lost data."""

    __slots__ = (
        "in_flight",
        "is_active",
        "is_paused",
        "is_snapshot_old",
        "life",
        "match",
        "mode",
        "next",
        "pending_snapshot",
        "sent_commit",
        "window_max",
    )

    def __init__(self, *, next_index: LogIndex, window_max: int) -> None:
        self.match = LogIndex(0)
        """Up to here the follower's log is durable and equal to the leader's."""
        self.next = next_index
        """What is sent next; all between ``match`` and it is on its way."""
        self.mode = Mode.PROBE
        self.is_active = False
        """Whether the follower was heard of since the leader last counted."""
        self.is_paused = False
        """Whether to wait for a reply, or for the next heartbeat's, before another append."""
        self.pending_snapshot = LogIndex(0)
        self.sent_commit = LogIndex(0)
        self.in_flight: deque[LogIndex] = deque()
        """The last index of each append that is not answered."""
        self.window_max = window_max
        self.life = 0
        """The life of its data that the follower answers from."""
        self.is_snapshot_old = False
        """Whether the snapshot under way was so already when the leader last counted."""

    def __repr__(self) -> str:
        paused = " paused" if self.is_paused else ""
        return f"<{self.mode.value} match {self.match} next {self.next}{paused}>"

    @property
    def is_waiting(self) -> bool:
        """Return True if nothing may be sent now."""
        return self.is_paused or self.mode is Mode.SNAPSHOT

    @property
    def is_window_full(self) -> bool:
        """Return True if only empty appends may be sent ahead."""
        return self.mode is Mode.REPLICATE and len(self.in_flight) >= self.window_max

    def _enter(self, mode: Mode) -> None:
        self.mode = mode
        self.is_paused = False
        self.pending_snapshot = LogIndex(0)
        self.is_snapshot_old = False
        self.in_flight.clear()

    def probe(self) -> None:
        """Find out where the logs match, behind the snapshot if one was sent."""
        pending = self.pending_snapshot if self.mode is Mode.SNAPSHOT else 0
        self._enter(Mode.PROBE)
        self.next = LogIndex(max(self.match, pending) + 1)
        self.sent_commit = min(self.sent_commit, LogIndex(self.next - 1))

    def replicate(self) -> None:
        """Send ahead from where the logs match."""
        self._enter(Mode.REPLICATE)
        self.next = LogIndex(self.match + 1)

    def send_snapshot(self, index: LogIndex) -> None:
        """Note that a snapshot is on its way."""
        self._enter(Mode.SNAPSHOT)
        self.pending_snapshot = self.sent_commit = index
        self.next = LogIndex(index + 1)

    def lose(self, life: int, *, next_index: LogIndex) -> None:
        """Forget what the follower had: it lost data, and answers from another life."""
        self.life = life
        self.match = LogIndex(0)
        self.probe()
        self.next = next_index
        self.sent_commit = LogIndex(0)

    def count_snapshot(self) -> None:
        """Give a snapshot up that is under way for longer than the leader's time to count."""
        if self.mode is Mode.SNAPSHOT:
            if self.is_snapshot_old:
                self.snapshot_ended(is_ok=False)
            else:
                self.is_snapshot_old = True

    def snapshot_ended(self, *, is_ok: bool) -> None:
        """Go on behind a snapshot, or where it began; both after the follower was heard of."""
        if self.mode is Mode.SNAPSHOT:
            if not is_ok:
                self.pending_snapshot = LogIndex(0)
            self.probe()
            self.is_paused = True

    def sent(self, count: int, *, commit: LogIndex) -> None:
        """Note an append with so many entries."""
        self.sent_commit = commit
        if self.mode is Mode.PROBE:
            self.is_paused = self.is_paused or count > 0
            return
        if count:
            self.next = LogIndex(self.next + count)
            self.in_flight.append(LogIndex(self.next - 1))
        self.is_paused = self.is_window_full

    def lacks_commit(self, commit: LogIndex) -> bool:
        """Return True if an append now would bring the follower's commit index forward."""
        return commit > self.sent_commit and self.sent_commit < self.next - 1

    def advance(self, index: LogIndex) -> bool:
        """Note that the follower has everything up to an index; return False for an old reply."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, LogIndex(index + 1))
        self.is_paused = False
        return True

    def settle(self, *, first_index: LogIndex) -> None:
        """Choose the mode after a reply that moved the match forward, or confirmed a probe."""
        if self.mode is Mode.PROBE:
            self.replicate()
        elif self.mode is Mode.REPLICATE:
            while self.in_flight and self.in_flight[0] <= self.match:
                self.in_flight.popleft()
        elif self.match + 1 >= first_index:
            self.probe()
            self.replicate()

    def retreat(self, rejected: LogIndex, hint: LogIndex) -> bool:
        """Go back after a refusal; return False if it answers something older."""
        if self.mode is Mode.REPLICATE:
            if rejected <= self.match:
                return False
            self.probe()
            return True
        if self.next - 1 != rejected:
            return False
        self.next = LogIndex(max(min(rejected, hint + 1), self.match + 1))
        self.sent_commit = min(self.sent_commit, LogIndex(self.next - 1))
        self.is_paused = False
        return True
