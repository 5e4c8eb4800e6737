"""One log of a replica group on this node: its files, if there are any, and what is known of it.

The state log of a partition is made at first use. Until then it is a log like any other that is
empty: it has an epoch, is fetched and counts as complete.
"""

from typing import Protocol

from goqueue.base.errors import LeaderNotAvailableError
from goqueue.base.ids import Epoch, Offset
from goqueue.core.replication.epochs import EpochHistory
from goqueue.core.replication.replica import LogId, LogKey, ReplicaLog
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.leadership import Mending
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.replica import Replica
from goqueue.runtime.log.topic import Topic
from goqueue.storage.log_notes import Gap
from goqueue.storage.replica_journal import ReplicaNotes


class LogOwner(Protocol):
    """The replica group that a log belongs to."""

    @property
    def is_alone(self) -> bool:
        """Whether an own sync commits."""
        ...

    def check_append(self) -> None:
        """Raise if nothing may be appended as a leader now."""
        ...

    def check_live(self) -> None:
        """Raise if this node may not answer as a leader now."""
        ...

    def appended(self, log: "GroupLog", end_offset: Offset) -> None:
        """Take note that a log has grown."""
        ...

    def synced(self, log: "GroupLog", durable_offset: Offset) -> None:
        """Take note of what the disk has of a log."""
        ...

    def trimmed(self, log: "GroupLog", start_offset: Offset) -> None:
        """Take note of what retention removed from a log."""
        ...

    def replicas_with(self, log: LogId, end_offset: Offset) -> int:
        """Return how many replicas have everything below an offset on their disks."""
        ...

    async def mend(self, log: LogId, gap: Gap) -> Mending:
        """Put good frames of another replica in the place of damaged ones."""
        ...


class GroupLog:
    """Satisfies ``Replication`` for its partition."""

    __slots__ = (
        "_owner",
        "has_stale_notes",
        "is_held",
        "key",
        "noted_offset",
        "own",
        "partition",
        "replica",
    )

    def __init__(self, owner: LogOwner, key: LogKey, notes: ReplicaNotes) -> None:
        self._owner = owner
        self.key = key
        self.own = ReplicaLog(high_watermark=notes.high_watermark, epochs=notes.epochs)
        self.noted_offset = notes.high_watermark
        """The high watermark that was last noted on the disk."""
        self.partition: Partition | None = None
        self.replica: Replica | None = None
        self.has_stale_notes = False
        """Whether epochs were noted that never got a message; they must go before others come."""
        self.is_held = False
        """Whether nothing is appended before the state of the partition is loaded."""

    def __repr__(self) -> str:
        return f"<GroupLog {self.key}: {self.own}>"

    def attach(self, partition: Partition, topic: Topic | None, clock: Clock) -> None:
        """Take the files of the log. A topic is given with its messages, for their dedup ids."""
        assert self.partition is None, "a log has its files once"
        self.partition, self.replica = partition, Replica(topic, partition, clock)

    def recovered(self) -> None:
        """Fit what was noted to the log as a start found it."""
        own = self.own
        if self.partition is not None:
            found = self.partition.log
            own.start_offset, own.end_offset = found.start_offset, found.end_offset
        self.has_stale_notes = own.epochs.has_start(own.end_offset)
        own.recovered()

    def check_disk(self) -> None:
        """Raise unless the log can be written."""
        if self.partition is not None:
            self.partition.check_open()

    # What the partition asks and reports.

    @property
    def high_watermark(self) -> Offset:
        """The offset below which every replica in sync has everything."""
        return self.own.high_watermark

    @property
    def epochs(self) -> EpochHistory:
        """Which epoch each message was written in."""
        return self.own.epochs

    @property
    def is_alone(self) -> bool:
        """Return True if no other replica is in sync."""
        return self._owner.is_alone

    def check_append(self) -> None:
        """Raise if this node may append nothing as a leader now."""
        self._owner.check_append()
        if self.is_held:
            raise LeaderNotAvailableError(f"the state of {self.key} is being loaded")

    def check_live(self) -> None:
        """Raise if this node may not answer as a leader now."""
        self._owner.check_live()

    def appended(self, end_offset: Offset) -> None:
        """Take the end of this node's log, which has grown."""
        self._owner.appended(self, end_offset)

    def synced(self, durable_offset: Offset) -> None:
        """Take the durable offset of this node."""
        self._owner.synced(self, durable_offset)

    def trimmed(self, start_offset: Offset) -> None:
        """Take the start of this node's log, which retention has moved."""
        self._owner.trimmed(self, start_offset)

    def replicas_with(self, end_offset: Offset) -> int:
        """Return how many replicas have everything below an offset on their disks."""
        return self._owner.replicas_with(self.key.log, end_offset)

    async def mend(self, gap: Gap) -> Mending:
        """Put good frames of another replica in the place of damaged ones."""
        return await self._owner.mend(self.key.log, gap)

    @property
    def is_end_damaged(self) -> bool:
        """Return True if no good message is behind the damage, so that its end is a guess."""
        if self.partition is None or not self.partition.log.recovery.gaps:
            return False
        return self.partition.log.recovery.gaps[-1].end_offset >= self.partition.log.end_offset

    # Roles.

    def lead(self, epoch: Epoch, *, may_lack: bool = False) -> None:
        """Let the partition take appends.

        A log that may lack what was acknowledged waits for the state, which may know of messages
        behind its end: new ones must not get their offsets.
        """
        if self.partition is not None:
            self.is_held = may_lack or not self.partition.settings.is_fsync
            self.partition.leadership.lead(epoch, self)
            self.partition.wake()

    def follow(self, epoch: Epoch) -> None:
        """Let the partition take none; those who wait are told."""
        self.is_held = False
        if self.partition is not None:
            self.partition.leadership.follow(epoch, self)
            self.partition.wake()

    def trim(self, start_offset: Offset) -> None:
        """Remove what lies before an offset, as far as whole segments do."""
        if self.replica is not None:
            self.replica.trim(start_offset)
        self.own.trimmed(start_offset)

    async def drop_files(self) -> None:
        """Remove the messages: this node has no replica any more."""
        if self.partition is not None and self.replica is not None:
            leadership = self.partition.leadership
            await self.replica.restart(Offset(0), epoch=leadership.epoch)
            leadership.follow(leadership.epoch, None)

    def show(self) -> None:
        """Let those go on who wait for the high watermark."""
        if self.partition is not None:
            self.partition.note_high_watermark()
