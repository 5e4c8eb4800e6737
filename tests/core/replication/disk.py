"""A disk of a simulated node: logs whose unsynced ends a power cut takes, and notes that stay."""

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from goqueue.base.ids import DirectoryId, Epoch, Offset
from goqueue.core.replication.epochs import EpochHistory
from goqueue.core.replication.replica import LogKey, ReplicaLog

ZERO = Offset(0)


class Frame(NamedTuple):
    """One message; the epoch is the truth, which the protocol does not get to see."""

    value: int
    epoch: Epoch


@dataclass
class DiskLog:
    """The files of one log."""

    start_offset: Offset = ZERO
    frames: list[Frame] = field(default_factory=list)
    synced: int = 0
    """How many of the frames survive a power cut."""
    cuts: int = 0
    """How often it was cut: a sync that began before does not count."""

    def __repr__(self) -> str:
        return f"<DiskLog {self.start_offset}..{self.durable_offset}..{self.end_offset}>"

    @property
    def end_offset(self) -> Offset:
        return Offset(self.start_offset + len(self.frames))

    @property
    def durable_offset(self) -> Offset:
        return Offset(self.start_offset + self.synced)

    def at(self, offset: int) -> Frame:
        assert offset >= self.start_offset
        return self.frames[offset - self.start_offset]

    def has(self, offset: int, value: int) -> bool:
        """Return True if a message is there and survives a power cut."""
        is_synced = self.start_offset <= offset < self.durable_offset
        return is_synced and self.at(offset).value == value

    def tail(self, offset: int) -> list[Frame]:
        assert offset >= self.start_offset
        return self.frames[offset - self.start_offset :]

    def sync(self, end_offset: int) -> None:
        self.synced = max(self.synced, min(end_offset, self.end_offset) - self.start_offset)

    def truncate(self, end_offset: int) -> None:
        self.cuts += 1
        del self.frames[max(end_offset - self.start_offset, 0) :]
        self.synced = len(self.frames)

    def restart(self, start_offset: Offset) -> None:
        self.truncate(self.start_offset)
        self.start_offset = start_offset

    def trim(self, start_offset: Offset) -> None:
        gone = start_offset - self.start_offset
        del self.frames[:gone]
        self.synced -= gone
        self.start_offset = start_offset

    def lose_power(self, random: Random) -> None:
        """Lose some of what was not synced, from the end."""
        del self.frames[random.randint(self.synced, len(self.frames)) :]


@dataclass
class Notes:
    """What the journal of replicas has of one log."""

    epochs: EpochHistory = field(default_factory=EpochHistory)
    high_watermark: Offset = ZERO


@dataclass
class SimDisk:
    """Everything that stays when a process ends."""

    directory: DirectoryId
    logs: dict[LogKey, DiskLog] = field(default_factory=dict)
    notes: dict[LogKey, Notes] = field(default_factory=dict)

    def open(self, key: LogKey) -> ReplicaLog:
        """Return what a process finds after its start; what it finds it syncs."""
        log = self.logs.setdefault(key, DiskLog())
        notes = self.notes.setdefault(key, Notes())
        log.synced = len(log.frames)
        found = ReplicaLog(
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            high_watermark=notes.high_watermark,
            epochs=notes.epochs.copy(),
        )
        found.recovered()
        # Noted before anything is appended: an epoch that was cut must not cover what comes.
        notes.epochs = found.epochs.copy()
        return found

    def lose_power(self, random: Random) -> None:
        for log in self.logs.values():
            log.lose_power(random)
