"""The follower of one replica group: what it fetches, and what it does with the answers.

Shape: stepper. ``take`` judges an answer and returns effects; when one is performed, its outcome is
noted in the ``ReplicaLog`` (``appended``, ``truncated`` …). Effects are performed in their order,
each of them whole before the next one, and a group's answers one after the other.

A log is cut only where the leader's epochs say that it differs, never at the high watermark
(KIP-101). In an epoch a log that was once found to be a prefix of the leader's stays one: later
answers that say otherwise are late, and are not believed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.base.ids import NO_EPOCH, Epoch, NodeId, Offset
from goqueue.core.replication.epochs import EpochStart
from goqueue.core.replication.replica import (
    FetchAnswer,
    FetchOutcome,
    FetchPosition,
    LogId,
    ReplicaLog,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteEpochs:
    """Forget the epochs noted from an offset on and note others, durably, before the next append.

    An epoch in which this node led and wrote nothing would cover what another leader wrote.
    """

    log: LogId
    end_offset: Offset
    starts: tuple[EpochStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFrames:
    """Write the frames of the answer as they are, after a look at their checksums and offsets."""

    log: LogId
    offset: Offset
    end_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateLog:
    """Drop everything from an offset on, durably, before anything else is written or noted.

    ``is_loss`` if committed messages go: the leader was elected although it did not have them.
    """

    log: LogId
    end_offset: Offset
    is_loss: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartLog:
    """Drop everything, durably, and go on at an offset: the leader has nothing before it."""

    log: LogId
    start_offset: Offset
    is_loss: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimLog:
    """Remove messages before an offset: retention of the leader has passed it."""

    log: LogId
    start_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCommitted:
    """Everything below an offset is committed and on this disk, and may be applied and shown."""

    log: LogId
    committed_offset: Offset


FollowerEffect = NoteEpochs | AppendFrames | TruncateLog | RestartLog | TrimLog | ShowCommitted


class GroupFollower:
    """One node's copy of one replica group while another node leads it."""

    def __init__(self, logs: Mapping[LogId, ReplicaLog]) -> None:
        self.logs = logs
        self.leader: NodeId | None = None
        self.epoch = NO_EPOCH
        self._matched: dict[LogId, None] = {}
        """Logs that are known to be a prefix of the leader's, in this epoch."""
        self._shown = {log: own.committed_offset for log, own in logs.items()}

    def __repr__(self) -> str:
        return f"<GroupFollower of {self.leader} in epoch {self.epoch}>"

    def follow(self, leader: NodeId | None, epoch: Epoch) -> bool:
        """Follow a leader, or wait for one; return False if the news is old."""
        if epoch < self.epoch or (epoch == self.epoch and leader == self.leader):
            return False
        self.leader, self.epoch = leader, epoch
        self._matched = {}
        return True

    def position(self, log: LogId) -> FetchPosition:
        """Return what to ask for next, and what this disk has: only that is ever reported."""
        own = self.logs[log]
        return FetchPosition(
            epoch=self.epoch,
            offset=own.end_offset,
            last_epoch=own.last_epoch,
            durable_offset=own.durable_offset,
        )

    def take(self, log: LogId, answer: FetchAnswer) -> list[FollowerEffect]:
        """Judge an answer of the leader."""
        if answer.epoch != self.epoch:
            return []
        match answer.outcome:
            case FetchOutcome.OK:
                return self._take_frames(log, answer)
            case FetchOutcome.DIVERGING | FetchOutcome.OUT_OF_RANGE:
                return self._cut(log, answer) if self._fits(log, answer) else []
            case FetchOutcome.FENCED | FetchOutcome.UNKNOWN:
                return []

    def synced(self, log: LogId, durable_offset: Offset) -> list[FollowerEffect]:
        """Take note of an fsync; it may let more of the log be shown."""
        self.logs[log].synced(durable_offset)
        return self._show(log)

    def _fits(self, log: LogId, answer: FetchAnswer) -> bool:
        """Return True if an answer is about the log as it is now."""
        own = self.logs[log]
        return answer.offset == own.end_offset and answer.last_epoch == own.last_epoch

    def _take_frames(self, log: LogId, answer: FetchAnswer) -> list[FollowerEffect]:
        effects: list[FollowerEffect] = []
        own = self.logs[log]
        if self._fits(log, answer):
            self._matched[log] = None
            if answer.end_offset > answer.offset:
                begun = tuple(s for s in answer.epochs if s.epoch > own.last_epoch)
                if begun or own.epochs.has_start(answer.offset):
                    effects.append(NoteEpochs(log=log, end_offset=answer.offset, starts=begun))
                effects.append(
                    AppendFrames(log=log, offset=answer.offset, end_offset=answer.end_offset)
                )
        if log in self._matched:
            # Of another log, one that parts from the leader's, these would show the wrong messages.
            own.high_watermark = max(own.high_watermark, answer.high_watermark)
            effects += self._show(log)
            start = min(answer.start_offset, own.committed_offset)
            effects += [TrimLog(log=log, start_offset=start)] if start > own.start_offset else []
        return effects

    def _show(self, log: LogId) -> list[FollowerEffect]:
        committed = self.logs[log].committed_offset
        if committed <= self._shown[log]:
            return []
        self._shown[log] = committed
        return [ShowCommitted(log=log, committed_offset=committed)]

    def _cut(self, log: LogId, answer: FetchAnswer) -> list[FollowerEffect]:
        if log in self._matched and answer.outcome is FetchOutcome.DIVERGING:
            return []
        own = self.logs[log]
        end = own.end_offset
        if answer.diverging is not None:
            end = own.epochs.common_end(answer.diverging, end_offset=own.end_offset)
        is_loss = end < self._shown[log]
        if is_loss:
            self._shown[log] = max(end, Offset(0))
        if end < max(answer.start_offset, own.start_offset):
            return [RestartLog(log=log, start_offset=answer.start_offset, is_loss=is_loss)]
        if end == own.end_offset:
            return []
        return [TruncateLog(log=log, end_offset=end, is_loss=is_loss)]
