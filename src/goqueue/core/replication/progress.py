"""How far one follower has come, as its leader knows it.

Shape: calculator. A follower had caught up at a time if its disk has everything that the leader's
log had then. An fsync takes longer than a fetch, so the leader sets a mark at its end, waits until
the follower's disk has reached it, and sets the next one.
"""

from collections.abc import Iterable, Mapping

from goqueue.base.ids import NodeEpoch, Offset
from goqueue.core.replication.replica import FetchPosition, LogId, ReplicaLog

UNHEARD = Offset(-1)
"""The durable offset of a follower that has not fetched in this epoch: nothing is committed yet."""


class LogProgress:
    """One log of one follower."""

    __slots__ = ("caught_up_ms", "durable_offset", "mark_ms", "mark_offset", "offset")

    def __init__(self, now_ms: int) -> None:
        self.offset = UNHEARD
        self.durable_offset = UNHEARD
        self.caught_up_ms = now_ms
        self.mark_offset: Offset | None = None
        self.mark_ms = now_ms

    def fetched(self, position: FetchPosition, *, end_offset: Offset, now_ms: int) -> None:
        """Take a position that fits to the leader's log. Late ones may come behind newer ones."""
        self.offset = max(self.offset, position.offset)
        durable = min(position.durable_offset, position.offset)
        self.durable_offset = max(self.durable_offset, durable)
        if self.mark_offset is None or self.durable_offset >= self.mark_offset:
            if self.mark_offset is not None:
                self.caught_up_ms = max(self.caught_up_ms, self.mark_ms)
            self.mark_offset, self.mark_ms = end_offset, now_ms
        if self.durable_offset >= end_offset:
            self.caught_up_ms = now_ms


class ReplicaProgress:
    """All logs of one follower in one replica group."""

    __slots__ = ("enter_from_ms", "has_lost", "logs", "node_epoch")

    def __init__(self, logs: Iterable[LogId], *, now_ms: int) -> None:
        self.node_epoch: NodeEpoch | None = None
        self.has_lost = False
        """Whether it came back with less than it had when it was in sync."""
        self.enter_from_ms = now_ms
        """When it may be proposed as in sync again, after the controller did not let it in."""
        self.logs = {log: LogProgress(now_ms) for log in logs}

    def begin(self, node_epoch: NodeEpoch, *, now_ms: int) -> None:
        """Start again with a new process of the node: what the last one had may be lost."""
        if self.node_epoch == node_epoch:
            return
        is_first = self.node_epoch is None
        self.node_epoch = node_epoch
        self.has_lost = False
        if not is_first:
            self.logs = {log: LogProgress(now_ms) for log in self.logs}

    def fetched(
        self, log: LogId, position: FetchPosition, *, end_offset: Offset, now_ms: int
    ) -> None:
        """Take a position in one of the logs."""
        self.logs[log].fetched(position, end_offset=end_offset, now_ms=now_ms)

    def is_at_end(self, logs: Mapping[LogId, ReplicaLog]) -> bool:
        """Return True if the follower's disk has all that the leader has written."""
        return all(self.logs[log].durable_offset >= logs[log].end_offset for log in logs)

    def leave_end(self, logs: Mapping[LogId, ReplicaLog], *, heard_ms: int | None) -> None:
        """Take note that the leader is about to write: until now the follower may be at its end."""
        if heard_ms is not None and self.is_at_end(logs):
            for log in self.logs.values():
                log.caught_up_ms = max(log.caught_up_ms, heard_ms)

    def caught_up_ms(self, logs: Mapping[LogId, ReplicaLog], *, heard_ms: int | None) -> int:
        """Return when the follower last had everything; at the end that is its last request."""
        known = min(log.caught_up_ms for log in self.logs.values())
        return max(known, heard_ms) if heard_ms is not None and self.is_at_end(logs) else known
