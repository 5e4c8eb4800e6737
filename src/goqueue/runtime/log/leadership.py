"""Who writes to a partition, and up to where its messages are committed.

On one node every partition is led here and nothing is replicated: what the disk has is committed.
With replication installed a message is committed when this disk has it and the high watermark, the
smallest durable offset of the replicas in sync, has passed it. Only what is committed is
acknowledged to anybody or shown to readers.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from goqueue.base.errors import GoQueueError, NotLeaderError, StorageFailedError
from goqueue.base.ids import NO_EPOCH, Epoch, Offset
from goqueue.storage.log_notes import Gap
from goqueue.storage.partition_log import PartitionLog

if TYPE_CHECKING:
    # A broker by itself loads nothing of replicas.
    from goqueue.core.replication.epochs import EpochHistory


class Role(Enum):
    """What a node does for a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"


class Mending(Enum):
    """What became of the attempt to get damaged messages from another replica."""

    DONE = "done"
    """They are here, in their place."""
    LOST = "lost"
    """No replica that could be asked has them."""
    LATER = "later"
    """A replica that has everything committed could not be asked."""


class Led(Protocol):
    """Something that has a leader."""

    @property
    def leadership(self) -> "Leadership":
        """Who leads it."""
        ...


L = TypeVar("L", bound=Led)


def led(partitions: Iterable[L]) -> list[L]:
    """Return those of some partitions that this node leads; a broker alone leads all."""
    return [one for one in partitions if one.leadership.role is Role.LEADER]


class Replication(Protocol):
    """What is known here of the replicas of one partition."""

    @property
    def high_watermark(self) -> Offset:
        """The offset below which every replica in sync has everything; it never goes back."""
        ...

    @property
    def epochs(self) -> "EpochHistory":
        """Which epoch each message of this node's log was written in."""
        ...

    @property
    def is_alone(self) -> bool:
        """Return True if no other replica is in sync: an own sync moves the high watermark."""
        ...

    def check_append(self) -> None:
        """Raise if this node may append nothing as a leader now: too few replicas are in sync."""
        ...

    def check_live(self) -> None:
        """Raise if this node may not answer as a leader now: its lease is over."""
        ...

    def appended(self, end_offset: Offset) -> None:
        """Take the end of this node's log, which has grown."""
        ...

    def synced(self, durable_offset: Offset) -> None:
        """Take the durable offset of this node; if alone, move the high watermark in this step."""
        ...

    def trimmed(self, start_offset: Offset) -> None:
        """Take the start of this node's log, which retention has moved."""
        ...

    def replicas_with(self, end_offset: Offset) -> int:
        """Return how many replicas have everything below an offset on their disks."""
        ...

    async def mend(self, gap: Gap) -> Mending:
        """Put good frames of another replica in the place of damaged ones."""
        ...


class Leadership:
    """Role and leader epoch of one partition, and those who wait for the high watermark."""

    __slots__ = ("_ends", "_log", "_waiting", "epoch", "replication", "role")

    def __init__(self, log: PartitionLog, role: Role = Role.LEADER) -> None:
        self._log = log
        self._waiting: deque[tuple[Offset, asyncio.Future[None]]] | None = None
        """Made at first use: an empty deque has 600 bytes, and nothing waits in most partitions."""
        self._ends: dict[int, Offset] = {}
        """Transactions whose ends were written here, each with the offset behind its end.

        Those that are committed are dropped. What a failed sync cut off stays: only a restart can
        write it again.
        """
        self.role = role
        self.epoch = Epoch(0)
        self.replication: Replication | None = None

    def __repr__(self) -> str:
        return f"<Leadership: {self.role.value} in epoch {self.epoch}>"

    @property
    def committed_offset(self) -> Offset:
        """Return the offset behind the last message that no change of leader takes back."""
        durable, replication = self._log.durable_offset, self.replication
        return durable if replication is None else min(durable, replication.high_watermark)

    def replicated(self, offset: Offset) -> Offset:
        """Return an offset, or the high watermark where that lies before it."""
        replication = self.replication
        return offset if replication is None else min(offset, replication.high_watermark)

    @property
    def is_alone(self) -> bool:
        """Return True if what is synced here is committed in the same step."""
        return self.replication is None or self.replication.is_alone

    def replicas_with(self, end_offset: Offset) -> int:
        """Return how many replicas have everything below an offset on their disks."""
        return 1 if self.replication is None else self.replication.replicas_with(end_offset)

    # Who may ask.

    def check_role(self) -> None:
        """Raise unless this node leads the partition."""
        if self.role is not Role.LEADER:
            raise NotLeaderError("this node does not lead the partition")

    def check_append(self) -> None:
        """Raise unless clients may append here now."""
        self.check_role()
        if self.replication is not None:
            self.replication.check_append()

    def check_led(self) -> None:
        """Raise unless this node leads the partition and may answer for it."""
        self.check_role()
        if self.replication is not None:
            self.replication.check_live()

    # What readers carry.

    def last_epoch(self, offset: Offset) -> Epoch:
        """Return the epoch of the message before an offset, NO_EPOCH without replicas."""
        replication = self.replication
        return NO_EPOCH if replication is None else replication.epochs.last_epoch(offset)

    def taken_back(self, offset: Offset, last_epoch: int) -> Gap | None:
        """Return which messages a reader has seen that this log does not have.

        It has read up to an offset, with a message of an epoch last. A leader that was elected
        although it lacked messages has others in their place, or will have (KIP-320).
        """
        replication = self.replication
        if replication is None or last_epoch <= NO_EPOCH:
            return None
        parting = replication.epochs.divergence(
            offset=offset, last_epoch=Epoch(last_epoch), end_offset=self._log.end_offset
        )
        if parting is None:
            return None
        start = max(parting.end_offset, self._log.start_offset)
        return Gap(start, offset) if start < offset else None

    # Ends of transactions.

    def note_end(self, number: int) -> None:
        """Remember that the end of a transaction was written."""
        self._ends[number] = self._log.end_offset

    def is_end_committed(self, number: int) -> bool:
        """Return True unless the end of a transaction was written here and is not committed."""
        end_offset = self._ends.get(number)
        return end_offset is None or end_offset <= self.committed_offset

    def forget_ends(self, end_offset: Offset) -> None:
        """Forget the ends of transactions that were cut off, from an offset on."""
        self._ends = {number: end for number, end in self._ends.items() if end <= end_offset}

    def _drop_ends(self) -> None:
        committed = self.committed_offset
        self._ends = {number: end for number, end in self._ends.items() if end > committed}

    # Changing roles.

    def lead(self, epoch: Epoch, replication: Replication | None) -> None:
        """Take appends from now on."""
        self._begin(Role.LEADER, epoch, replication)

    def follow(self, epoch: Epoch, replication: Replication | None) -> None:
        """Take no more appends of clients; whether those in flight are kept is not known here.

        Without replication the node has no replica of the partition: it only says so.
        """
        self._begin(Role.FOLLOWER, epoch, replication)
        self.fail(NotLeaderError("this node does not lead the partition any more"))

    def _begin(self, role: Role, epoch: Epoch, replication: Replication | None) -> None:
        assert epoch >= self.epoch, "epochs only grow"
        self.role, self.epoch, self.replication = role, epoch, replication
        self.advance()

    # Waiting.

    def committed(self, durable: asyncio.Future[None]) -> asyncio.Future[None]:
        """Return a future that is done when everything appended so far is committed.

        ``durable`` is the sync of the same on this node.
        """
        future = durable.get_loop().create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((self._log.end_offset, future))
        durable.add_done_callback(partial(self._end_sync, future))
        return future

    def check_disk(self, failure: StorageFailedError) -> None:
        """Raise NotLeaderError if the disk failed and another replica leads from now on.

        Whether that has what was appended here is not known.
        """
        if not self.is_alone:
            raise NotLeaderError(f"the leader gave the partition up: {failure.message}")

    def _end_sync(self, future: asyncio.Future[None], durable: asyncio.Future[None]) -> None:
        error = None if durable.cancelled() else durable.exception()
        if error is not None and not future.done():
            try:
                if isinstance(error, StorageFailedError):
                    self.check_disk(error)
            except NotLeaderError as elsewhere:
                error = elsewhere
            future.set_exception(error)
        self.advance()

    def appended(self) -> None:
        """Report that the log has grown."""
        if self.replication is not None:
            self.replication.appended(self._log.end_offset)

    def trimmed(self) -> None:
        """Report that retention has moved the start of the log."""
        if self.replication is not None:
            self.replication.trimmed(self._log.start_offset)

    def synced(self) -> None:
        """Take notice of what the disk has, and report it."""
        if self.replication is not None:
            self.replication.synced(self._log.durable_offset)
            self.advance()
        if self._ends:
            self._drop_ends()

    def advance(self) -> None:
        """Let those go on whose messages are committed."""
        committed = self.committed_offset
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= committed):
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)

    def fail(self, error: GoQueueError) -> None:
        """Fail every waiter: nothing more is committed here."""
        waiting, self._waiting = self._waiting, None
        for _, future in waiting or ():
            if not future.done():
                future.set_exception(type(error)(*error.args))
