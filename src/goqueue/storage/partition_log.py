"""The log of one partition: segments in order, one of them taking appends.

One task owns a log; only ``Commit.run`` and reads of a file may happen in another thread. All but
the last segment are sealed: synced, indexed and never written again.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from goqueue.base.errors import GoQueueError, StorageFailedError
from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_HEADER_BYTES, SEGMENT_BYTES
from goqueue.base.units import NS_PER_MS, KiB
from goqueue.core.log.retention import SegmentAge, expired_segments
from goqueue.core.log.scan import Span
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.frame import seal_header
from goqueue.storage.disk import Buffer, Disk
from goqueue.storage.log_commit import Commit
from goqueue.storage.log_notes import Gap
from goqueue.storage.log_segments import LogSegments
from goqueue.storage.segment import Appending, Segment
from goqueue.storage.swap import (
    SWAP_NAME,
    Swap,
    forget_swap,
    write_checkpoint,
)
from goqueue.storage.truncation import Cut, find_cut, shorten_index

JOINED_BYTES_MAX: Final = 16 * KiB
"""Up to this much, one copy costs less than to hand over many buffers."""


class PartitionLog(LogSegments):
    """Appends, commits, reads and forgets frames. Its directory is there before it is opened."""

    def __init__(self, disk: Disk, directory: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.segment_bytes = segment_bytes
        self.failure: StorageFailedError | None = None
        self.is_committing = False
        self._unfinished: Swap | None = None
        super().__init__(disk, directory)
        self.durable_offset = self.end_offset
        self._synced_size = self._active.size

    def __repr__(self) -> str:
        return f"<PartitionLog {self._directory} {self.start_offset}..{self.end_offset}>"

    # Writing.

    def fits(self, size: int) -> bool:
        """Return True if so many bytes go into the active segment; if not, ``roll`` first."""
        return self._active.is_empty or self._active.size + size <= self.segment_bytes

    def roll(self) -> None:
        """Seal the active segment and begin the next. Waits for the disk."""
        assert not self._active.is_empty, "two segments would begin at the same offset"
        self._guard(self._seal)
        self._guard(lambda: self._add_segment(self.end_offset))
        # A reader opens it again when it needs it; otherwise every segment would hold a file.
        self._segments[-2].close()

    def _seal(self) -> None:
        assert not self.is_committing, "nobody else writes the index meanwhile"
        self._active.sync()
        self.durable_offset = self.end_offset
        self._synced_size = self._active.size
        self._active.mark_end()
        self._active.index.seal()

    def _add_segment(self, base_offset: Offset) -> None:
        super()._add_segment(base_offset)
        self._synced_size = 0

    def append(self, frames: Sequence[CheckedFrame]) -> Offset:
        """Give the frames the next offsets and write them; return the first offset."""
        self.check_writable()
        base = offset = self.end_offset
        buffers: list[Buffer] = []
        size = rows = 0
        for frame in frames:
            rest = memoryview(frame.frame)[FRAME_HEADER_BYTES:]
            buffers += (seal_header(frame.header, rest, offset=offset), rest)
            size += FRAME_HEADER_BYTES + len(rest)
            rows += frame.rows
            offset = Offset(offset + frame.rows)
        self._active.append(
            Appending(
                buffers=[b"".join(buffers)] if size <= JOINED_BYTES_MAX else buffers,
                size=size,
                first_offset=base,
                rows=rows,
                timestamp_ns=max([frame.header.timestamp_ns for frame in frames]),
            )
        )
        self.counters.bytes_written += size
        return base

    def append_rows(self, frames: Sequence[bytes], *, timestamp_ns: int) -> None:
        """Write row frames that have the next offsets already, in one write."""
        self.check_writable()
        active = self._active
        active.file.append(frames)
        active.note_rows(frames, timestamp_ns=timestamp_ns)
        self.counters.bytes_written += sum(map(len, frames))

    def append_stored(self, frames: Buffer, spans: Sequence[Span]) -> None:
        """Write checked frames that have their offsets already, in one write."""
        self.check_writable()
        assert spans[0].header.offset == self.end_offset, "a log has no holes"
        self._active.append_stored(frames, spans)
        self.counters.bytes_written += len(frames)

    def begin_commit(self) -> Commit:
        """Plan the sync of everything appended so far; ``finish_commit`` ends it."""
        assert not self.is_committing, "one commit at a time"
        self.is_committing = True
        segment = self._active
        return Commit(
            file=segment.file,
            end_offset=self.end_offset,
            end_size=segment.size,
            flush=segment.plan_flush(),
        )

    def finish_commit(self, commit: Commit, error: StorageFailedError | None) -> None:
        """Note the outcome of ``Commit.run``. After a failed sync the log takes no more writes."""
        self.is_committing = False
        self.counters.syncs += 1
        self._active.settle(commit.flush)
        if error is not None:
            self._fail(error)
        else:
            self.durable_offset = max(self.durable_offset, commit.end_offset)
            self._synced_size = commit.end_size

    def _fail(self, error: StorageFailedError) -> None:
        self.counters.sync_errors += 1
        self.failure = error
        # The failed sync may have dropped pages that memory still shows. Nobody was promised them,
        # so they are cut off before a restart can take them for durable.
        with contextlib.suppress(GoQueueError):
            self._active.take_back(size=self._synced_size, next_offset=self.durable_offset)

    def check_writable(self) -> None:
        """Refuse a log whose disk has failed."""
        if self.failure is not None:
            raise StorageFailedError(self.failure.message) from self.failure

    def _guard(self, action: Callable[[], None]) -> None:
        self.check_writable()
        try:
            action()
        except StorageFailedError as error:
            self._fail(error)
            raise

    # Forgetting.

    def skip_to(self, end_offset: Offset) -> None:
        """Go on at an offset that lies ahead: those before it were given to messages now lost.

        Were they assigned again, new messages would be taken for old ones.
        """
        gap = Gap(self.end_offset, end_offset)
        assert gap.start_offset < end_offset, "the end only moves on"
        if not self._active.is_empty:
            self._guard(self._seal)
        self._guard(lambda: self._add_segment(end_offset))
        self.durable_offset = end_offset
        self.recovery.lost_tail = gap
        self.report_gap(gap)

    def finish_swap(self) -> None:
        """Do what is left of the last swap. Waits for the disk; nothing to do costs nothing."""
        if self._unfinished is not None:
            self._unfinished.put_rest(self._disk, self._directory)
            self._unfinished = None
        if self._disk.exists(f"{self._directory}/{SWAP_NAME}"):
            forget_swap(self._disk, self._directory)

    def replace(self, swap: Swap) -> None:
        """Put a compacted segment in the place of those it was made from. Waits for the disk.

        Raises with the log as it was, or else the new segment is part of it.
        """
        place = next(n for n, one in enumerate(self.sealed) if one.base_offset == swap.base_offset)
        old = self._segments[place : place + len(swap.replaced)]
        assert [one.base_offset for one in old] == list(swap.replaced), "they follow one another"
        assert self._active not in old, "only sealed segments are compacted"
        assert self._unfinished is None, "one swap at a time"
        swap.begin(self._disk, self._directory)
        self._unfinished = swap
        self._segments[place : place + len(old)] = [
            Segment(self._disk, self._directory, swap.base_offset)
        ]
        for segment in old:
            segment.close()
            with contextlib.suppress(ValueError):
                self._opened.remove(segment)
        self.counters.segments_deleted += len(old) - 1
        swap.put_rest(self._disk, self._directory)
        self._unfinished = None

    def expire(
        self,
        *,
        now_ms: int,
        retention_ms: int,
        retention_bytes: int,
        held_from: Offset | None = None,
        end_max: int | None = None,
    ) -> int:
        """Delete the segments retention no longer keeps; return how many. Waits for the disk.

        From ``held_from`` on none goes by its time, however old it is, and none goes that ends
        behind ``end_max``.
        """
        ages = [self.age_of(segment) for segment in self._segments]
        if held_from is not None:
            now = SegmentAge(size_bytes=0, last_timestamp_ns=now_ms * NS_PER_MS)
            ages = [
                replace(now, size_bytes=age.size_bytes) if self.end_of(one) > held_from else age
                for one, age in zip(self._segments, ages, strict=True)
            ]
        cutoff_ns = (now_ms - retention_ms) * NS_PER_MS
        is_old = retention_ms > 0 and ages[-1].last_timestamp_ns < cutoff_ns
        if is_old and not self._active.is_empty:
            # The active segment is never deleted, so it is sealed first.
            self.roll()
            ages.append(SegmentAge(size_bytes=0, last_timestamp_ns=0))
        count = expired_segments(
            ages, now_ms=now_ms, retention_ms=retention_ms, retention_bytes=retention_bytes
        )
        while count and end_max is not None and self._segments[count].base_offset > end_max:
            count -= 1
        self._drop_first(count)
        return count

    def trim(self, start_offset: Offset) -> int:
        """Delete the segments that end at an offset or before; return how many. Waits for disk."""
        bases = (segment.base_offset for segment in self._segments[1:])
        count = sum(base <= start_offset for base in bases)
        self._drop_first(count)
        return count

    def _drop_first(self, count: int) -> None:
        for segment in self._segments[:count]:
            segment.remove()
        if count:
            del self._segments[:count]
            # What is gone is not damaged any more, and nothing is there to be repaired.
            self.recovery.mended(Gap(Offset(0), self.start_offset))
            self._disk.sync_directory(self._directory)
            self.counters.segments_deleted += count

    def restart(self, start_offset: Offset) -> None:
        """Drop everything and go on at an offset, durably. Waits for the disk.

        A crash in between leaves a log that is cut short, or none.
        """
        self.truncate(self.start_offset)
        assert len(self._segments) == 1, "truncation leaves the first segment"
        first = self._segments[0]
        try:
            first.remove()
            self._disk.sync_directory(self._directory)
            self._add_segment(start_offset)
        except GoQueueError as error:
            # What memory shows is nowhere, so nothing is cut back as after another failure.
            self.failure = StorageFailedError(
                f"cannot begin {self._directory} anew: {error.message}"
            )
            raise
        del self._segments[0]
        self._opened.clear()
        self.durable_offset = start_offset
        self.cleaned_offset = min(self.cleaned_offset, start_offset)
        self.recovery.cut(Offset(0))

    def truncate(self, end_offset: Offset, cut: Cut | None = None) -> None:
        """Drop every frame from ``end_offset`` on, durably. Waits for the disk.

        Raises with nothing changed; or, where the disk failed half-way, the log takes no more
        writes, and what opens it finds it cut in part.
        """
        assert self.start_offset <= end_offset <= self.end_offset, "truncation shortens the log"
        assert not self.is_committing, "nobody else writes the index meanwhile"
        cut = find_cut(self._segments, end_offset) if cut is None else cut
        last = self._segments[cut.segments - 1]
        if last is self._active and cut.size == last.size and cut.is_exact:
            return
        if self.cleaned_offset > end_offset:
            write_checkpoint(self._disk, self._directory, end_offset)
            self.cleaned_offset = end_offset
        shorten_index(self._disk, self._directory, last.base_offset, cut.size)
        try:
            self._cut(cut, end_offset)
        except GoQueueError as error:
            self._fail(StorageFailedError(f"cannot cut {self._directory}: {error.message}"))
            raise
        self.recovery.cut(end_offset)

    def _cut(self, cut: Cut, end_offset: Offset) -> None:
        while len(self._segments) > cut.segments:
            gone = self._segments.pop()
            # What is left is consistent should the disk fail now.
            self._synced_size = self._active.size
            self._active.next_offset = self.durable_offset = gone.base_offset
            gone.remove()
            self._disk.sync_directory(self._directory)
            self.counters.segments_deleted += 1
        self._synced_size, self.durable_offset = cut.size, end_offset
        self._active.cut(size=cut.size, next_offset=end_offset)
        # A new object for what stays: what was read of the old one is not taken for it.
        segment = Segment(self._disk, self._directory, self._active.base_offset)
        is_whole = cut.is_exact and segment.recover().fault is None
        segment.next_offset = end_offset
        self._opened = [one for one in self._opened if one in self._segments[:-1]]
        self._segments[-1] = segment
        if not is_whole:
            segment.rebuild_index()
            self._seal()
            self._add_segment(end_offset)

    def close(self) -> None:
        """Make what was appended durable (unless the disk failed) and release the files."""
        try:
            if self.failure is None:
                self._guard(self._seal)
        finally:
            for segment in self._segments:
                segment.close()
