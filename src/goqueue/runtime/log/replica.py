"""The log of a follower: frames are stored as their leader sent them, and cut off as it says.

They have their offsets and checksums already, so the bytes are the same on every replica, and what
a partition knows beside its log is brought up to date by the code that reads it off a log at start.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from goqueue.base.errors import CorruptFrameError, InvalidRequestError
from goqueue.base.ids import Epoch, Offset
from goqueue.core.log.scan import Span, Walk
from goqueue.core.tx.index import TxIndex
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.dedup_recall import recall_frames
from goqueue.runtime.log.leadership import Role
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.log.partition_state import note_frame
from goqueue.runtime.log.producer_snapshot import appended
from goqueue.runtime.log.topic import Topic
from goqueue.storage.truncation import find_cut


class Replica:
    """A partition that follows a leader. One task at a time calls it.

    A state log belongs to no topic that would know dedup ids of it.
    """

    def __init__(self, topic: Topic | None, partition: Partition, clock: Clock) -> None:
        self._topic = topic
        self._partition = partition
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Replica {self._partition.name} up to {self._partition.log.end_offset}>"

    async def append_stored(
        self, frames: memoryview, *, epoch: Epoch, segment_base: Offset | None = None
    ) -> Offset:
        """Write frames of the leader of an epoch and have them synced soon; return the end.

        Raises with nothing written. With ``segment_base``, where the leader's segment of these
        frames begins, segments begin at the same offsets here.
        """
        self._check(epoch)
        spans = check_stored(frames, end_offset=self._partition.log.end_offset)
        await self._make_room(len(frames), segment_base)
        # No await from here on. While a segment was begun, another node may have become leader.
        self._check(epoch)
        self._partition.log.append_stored(frames, spans)
        self.note(frames, spans)
        self._partition.note_appended(len(frames), len(spans))
        if self._partition.settings.is_fsync:
            self._partition.sync_soon()
        return self._partition.log.end_offset

    async def truncate(self, end_offset: Offset, *, epoch: Epoch) -> None:
        """Drop everything from an offset on: the leader of an epoch does not have it.

        What is committed is never dropped. Frames without messages right at the offset go, too;
        the leader sends them again.
        """

        def check() -> None:
            self._check(epoch)
            self._check_cut(end_offset)

        check()
        await self._alone(partial(self._cut, end_offset, check))

    async def restart(self, start_offset: Offset, *, epoch: Epoch) -> None:
        """Drop everything and go on at an offset: the leader of an epoch has nothing before it."""
        self._check(epoch)
        await self._alone(partial(self._begin_anew, start_offset, partial(self._check, epoch)))

    def trim(self, start_offset: Offset) -> None:
        """Remove the segments before an offset, which retention of the leader has passed."""
        partition = self._partition
        if (
            partition.rolling is None
            and not partition.is_compacting
            and partition.log.trim(start_offset)
        ):
            partition.note_trimmed()

    async def _alone(self, work: Callable[[], None]) -> None:
        """Change the log while nothing is appended to it or synced, as while it is sealed."""
        partition = self._partition
        while partition.rolling is not None:
            await asyncio.shield(partition.rolling)
        partition.rolling = asyncio.get_running_loop().create_task(self._work_alone(work))
        await asyncio.shield(partition.rolling)

    async def _work_alone(self, work: Callable[[], None]) -> None:
        partition = self._partition
        try:
            while partition.log.is_committing:
                await partition.durable()
            # No await from here on.
            work()
        finally:
            partition.rolling = None
            partition.wake()

    def _cut(self, end_offset: Offset, check: Callable[[], None]) -> None:
        check()
        partition = self._partition
        cut = find_cut(partition.log.segments, end_offset)
        tx = partition.snapshots.cut(partition.log, end_offset, cut)
        partition.log.truncate(end_offset, cut)
        partition.note_cut(end_offset, tx)
        self._forget(end_offset)

    def _begin_anew(self, start_offset: Offset, check: Callable[[], None]) -> None:
        check()
        partition = self._partition
        first = partition.log.start_offset
        partition.snapshots.drop_all()
        partition.log.restart(start_offset)
        partition.note_cut(first, TxIndex())
        partition.note_trimmed()
        self._forget(first)

    def _forget(self, end_offset: Offset) -> None:
        """Let nothing outside the partition know of the messages from an offset on."""
        partition = self._partition
        if partition.trace is not None:
            partition.trace.tracer.forget_callers(partition.trace.place.tag, end_offset)
        if self._topic is not None:
            self._topic.forget_from(partition.name.partition, end_offset)

    def _check_cut(self, end_offset: Offset) -> None:
        log, committed = self._partition.log, self._partition.leadership.replicated
        if not committed(log.end_offset) <= end_offset <= log.end_offset:
            raise InvalidRequestError(
                f"{self._partition.name} cannot be cut to {end_offset}: it is committed up to"
                f" {committed(log.end_offset)} and ends at {log.end_offset}"
            )
        if end_offset < log.start_offset:
            raise InvalidRequestError(
                f"{self._partition.name} begins at {log.start_offset}, behind {end_offset}"
            )

    def _check(self, epoch: Epoch) -> None:
        leadership = self._partition.leadership
        if leadership.role is not Role.FOLLOWER or leadership.epoch != epoch:
            raise InvalidRequestError(
                f"{self._partition.name} does not follow a leader of epoch {epoch}"
            )
        self._partition.check_open()

    async def _make_room(self, size: int, segment_base: Offset | None) -> None:
        partition = self._partition
        if segment_base is None:
            await partition.make_room(size)
            return
        while partition.rolling is not None:
            await partition.roll()
        log = partition.log
        if segment_base == log.end_offset and log.segments[-1].base_offset != segment_base:
            await partition.roll()

    def note(self, frames: memoryview, spans: list[Span]) -> None:
        """Bring what is known beside the log up to date with frames that came into it."""
        partition = self._partition
        for span in spans:
            header, frame = span.header, frames[span.start : span.end]
            event = appended(header, frame)
            if event is not None:
                partition.ledger.apply(event)
            control = note_frame(partition.queue, header, frame)
            if control is not None:
                partition.leadership.note_end(control.number)
        window_ms = 0 if self._topic is None else self._topic.settings.dedup_window_ms
        if self._topic is not None and window_ms:
            self._topic.remember(recall_frames(partition, self._clock, window_ms, frames, spans))


def check_stored(frames: memoryview, *, end_offset: Offset) -> list[Span]:
    """Return the frames of a leader, or raise unless they are whole and continue a log exactly."""
    walk = Walk(frames)
    spans = list(walk)
    if walk.fault is not None:
        raise walk.fault
    if walk.needed or not spans:
        raise CorruptFrameError("the frames of a leader are cut")
    for span in spans:
        if span.header.offset != end_offset:
            raise InvalidRequestError(
                f"a frame at offset {span.header.offset} does not continue a log at {end_offset}"
            )
        end_offset = span.end_offset
    return spans
