"""What a node has applied of the log in etcd, and the proposals that wait for it.

A term is the revision at which a leader's key was written, so a later leader has a greater one.
Batches of a term end with the event that changes the leader's key: what a leader proposed and has
not seen by then is certainly not in the log.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from goqueue.base.errors import DeadlineExceededError, GoQueueError, NotLeaderError
from goqueue.core.raft.messages import Entry as RaftEntry
from goqueue.core.raft.messages import EntryKind, LogIndex, Membership, PeerId, Term
from goqueue.core.raft.quorum import change_in, changed
from goqueue.runtime.cluster.consensus import Outcome, StateMachine
from goqueue.runtime.cluster.etcd.records import (
    LeaderRecord,
    LogBatch,
    LogItem,
    LogRecord,
    SnapshotRecord,
)

_LOST: Final = "this node led no longer before the proposal was written"
_UNKNOWN: Final = "a snapshot passed the proposal: it may have been applied before or not"


class WaitingProposal:
    """A proposal and the future of its caller."""

    def __init__(self, item: LogItem) -> None:
        self.item: Final = item
        self.future: Final[asyncio.Future[Outcome]] = asyncio.get_running_loop().create_future()

    def end(self, error: GoQueueError) -> None:
        """Let the caller wait no longer."""
        if not self.future.done():
            self.future.set_exception(error)
            # A caller that gave up does not look at it, which is no mistake to warn of.
            self.future.exception()


class BatchUnderWay:
    """A batch that is being written; its outcome may not be known yet."""

    def __init__(self, first: int, term: int, waiting: Sequence[WaitingProposal]) -> None:
        self.first: Final = first
        self.waiting: Final = waiting
        self.batch: Final = LogBatch(term, tuple(one.item for one in waiting))

    @property
    def last(self) -> int:
        """The index of its last entry."""
        return self.first + len(self.waiting) - 1


class EtcdReplica:
    """The state machine of a node, the log's place it is at, and the leader as of there."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self.index = 0
        self.head_revision = 0
        """The revision of the last batch that is applied: the condition for the next one."""
        self.membership = Membership()
        self.leader: LeaderRecord | None = None
        self.leader_revision = 0
        self.term = 0
        """The greatest term of a leader that this node has seen."""
        self.batches_kept = 0
        self.bytes_kept = 0
        """What is in etcd behind the last snapshot, as far as this node has seen it."""
        self.is_loaded = False
        self._queue: deque[WaitingProposal] = deque()
        self._queue_bytes = 0
        self.under_way: BatchUnderWay | None = None

    def __repr__(self) -> str:
        return f"<EtcdReplica at {self.index}, leader {self.leader} since {self.leader_revision}>"

    # What etcd says

    def restore(self, record: SnapshotRecord, data: bytes) -> None:
        """Replace everything by a snapshot of a later index."""
        self._machine.restore(data)
        self.index = record.index
        self.membership = record.membership
        self.batches_kept = self.bytes_kept = 0
        batch = self.under_way
        if batch is not None and batch.first <= record.index:
            self.under_way = None
            for one in batch.waiting:
                one.end(DeadlineExceededError(_UNKNOWN))

    def apply(self, record: LogRecord, size: int) -> bool:
        """Apply a batch unless it is applied already; return False if one before it is missing."""
        if record.last <= self.index:
            return True
        if record.first != self.index + 1:
            return False
        items = enumerate(record.batch.items, record.first)
        results = [self._apply_one(at, item) for at, item in items]
        self.head_revision = record.revision
        self.batches_kept += 1
        self.bytes_kept += size
        batch = self.under_way
        if batch is not None and batch.first == record.first:
            self.under_way = None
            if batch.batch.term == record.batch.term:
                _answer(batch, results)
            else:
                _end(batch.waiting, NotLeaderError(_LOST))
        return True

    def _apply_one(self, index: int, item: LogItem) -> object:
        self.index = index
        match item.kind:
            case EntryKind.DATA:
                return self._machine.apply(index, item.data)
            case EntryKind.CHANGE:
                entry = RaftEntry(LogIndex(index), Term(0), item.kind, item.data)
                self.membership = changed(self.membership, change_in(entry)) or self.membership
            case EntryKind.EMPTY:
                pass
        return None

    def set_leader(self, leader: LeaderRecord | None, revision: int) -> None:
        """Note who leads since a revision (0: none); what this node had proposed before is lost."""
        if revision == self.leader_revision:
            return
        self.leader, self.leader_revision = leader, revision
        self.term = max(self.term, revision)
        self.end_queued(NotLeaderError(_LOST))
        if self.under_way is not None and self.under_way.batch.term != revision:
            self.drop_batch(NotLeaderError(_LOST))

    # What is proposed

    def queue(self, item: LogItem) -> WaitingProposal:
        """Let a proposal wait for the next batch."""
        one = WaitingProposal(item)
        self._queue.append(one)
        self._queue_bytes += len(item.data)
        return one

    @property
    def queued_bytes(self) -> int:
        """What waits for a batch."""
        return self._queue_bytes

    @property
    def has_queued(self) -> bool:
        """Return True if a proposal waits for a batch."""
        return bool(self._queue)

    @property
    def is_changing(self) -> bool:
        """Return True while a change of the members is proposed and not applied."""
        under_way = self.under_way.waiting if self.under_way else ()
        proposed = (*under_way, *self._queue)
        return any(one.item.kind is EntryKind.CHANGE and not one.future.done() for one in proposed)

    def take_batch(self, *, bytes_max: int, entries_max: int) -> BatchUnderWay | None:
        """Make a batch of what waits; callers that gave up are left out."""
        assert self.under_way is None, "one batch after the other"
        taken: list[WaitingProposal] = []
        size = 0
        while self._queue and len(taken) < entries_max:
            one = self._queue[0]
            if taken and size + len(one.item.data) > bytes_max:
                break
            self._queue.popleft()
            self._queue_bytes -= len(one.item.data)
            if not one.future.done():
                taken.append(one)
                size += len(one.item.data)
        if taken:
            self.under_way = BatchUnderWay(self.index + 1, self.leader_revision, taken)
        return self.under_way

    def drop_batch(self, error: GoQueueError) -> None:
        """End the batch under way, which was certainly not written."""
        assert self.under_way is not None
        batch, self.under_way = self.under_way, None
        _end(batch.waiting, error)

    def end_queued(self, error: GoQueueError) -> None:
        """End what waits for a batch, and so was certainly not written."""
        queued, self._queue, self._queue_bytes = self._queue, deque(), 0
        _end(queued, error)

    def end(self, error: GoQueueError) -> None:
        """End everything; the batch under way may be written or not."""
        self.end_queued(error)
        if self.under_way is not None:
            self.drop_batch(error)

    # What a snapshot is made of

    def snapshot(self) -> bytes:
        """Return the state machine as of ``index``."""
        return self._machine.snapshot()

    def is_voter(self, peer: PeerId) -> bool:
        """Return True if a node may lead."""
        return peer in self.membership.voters


def _answer(batch: BatchUnderWay, results: Sequence[object]) -> None:
    for at, (one, result) in enumerate(zip(batch.waiting, results, strict=True), batch.first):
        if not one.future.done():
            one.future.set_result(Outcome(index=at, result=result))


def _end(waiting: Iterable[WaitingProposal], error: GoQueueError) -> None:
    for one in waiting:
        one.end(error)
