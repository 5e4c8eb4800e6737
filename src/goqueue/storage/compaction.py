"""Compacting the sealed segments of a log beside it, while it is read and written.

A compaction reads the segments (``survey``), writes a compacted one for each group of them
(``write_next``) and hands it over to be put in place. Nothing here touches the log itself, so any
thread may run it. Segments with a bad frame are left as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pyroaring import BitMap64

from goqueue.base.errors import GoQueueError, ShuttingDownError
from goqueue.base.ids import Offset, Position
from goqueue.base.limits import INDEX_INTERVAL_BYTES
from goqueue.core.log.compaction import CompactionRules, Superseded
from goqueue.core.log.rewrite import Kept, keep_rows
from goqueue.core.log.scan import Span
from goqueue.core.record.hole import encode_holes
from goqueue.storage.disk import Disk
from goqueue.storage.partition_log import PartitionLog
from goqueue.storage.segment import Appending, Segment
from goqueue.storage.swap import CLEANED, Swap, remove_cleaned


class Source(NamedTuple):
    """A segment to be compacted, with the offsets it holds."""

    base_offset: Offset
    end_offset: Offset
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What compaction finds in a log: messages, and how many of them go."""

    records_before: int
    records_removed: int


class Compaction:
    """One compaction of one log."""

    def __init__(
        self,
        disk: Disk,
        log: PartitionLog,
        rules: CompactionRules,
        *,
        with_active: bool = False,
        end_max: int | None = None,
        hidden: BitMap64 | None = None,
        cancelled: BitMap64 | None = None,
    ) -> None:
        self._hidden = BitMap64() if hidden is None else hidden.copy()
        self._cancelled = BitMap64() if cancelled is None else cancelled.copy()
        self._disk = disk
        self._directory = log.directory
        self._segment_bytes = log.segment_bytes
        self._rules = rules
        self._sources = [
            Source(segment.base_offset, log.end_of(segment), segment.size)
            for segment in (log.segments if with_active else log.sealed)
            if segment.size and (end_max is None or log.end_of(segment) < end_max)
        ]
        self._damaged: set[Offset] = set()
        self._dropped = BitMap64()
        self._next = 0
        self.is_cancelled = False

    def __repr__(self) -> str:
        return f"<Compaction of {self._directory}: {len(self._sources)} segments>"

    @property
    def end_offset(self) -> Offset:
        """The offset behind the last segment that is compacted."""
        return self._sources[-1].end_offset if self._sources else Offset(0)

    def dropped_by(self, swap: Swap) -> BitMap64:
        """Return the offsets whose messages a compacted segment no longer holds."""
        last = next(one for one in self._sources if one.base_offset == swap.replaced[-1])
        offsets = BitMap64()
        offsets.add_range(swap.base_offset, last.end_offset)
        return offsets & self._dropped

    # Looking.

    def survey(self) -> Survey:
        """Find out what may go."""
        superseded = Superseded(self._rules, left_alone=self._hidden | self._cancelled)
        records = 0
        is_first = True
        while superseded.begin_pass():
            for source in self._sources:
                for span, frame in self._frames(source):
                    superseded.show(span.header, frame)
                    if is_first and not span.header.is_hole:
                        records += span.rows
            is_first = False
        # What is hidden will be seen one day, and must then find the tombstone behind it.
        self._dropped = superseded.finish(is_whole=not self._damaged and not self._hidden)
        for source in self._sources:
            if source.base_offset in self._damaged:
                self._dropped.remove_range(source.base_offset, source.end_offset)
        return Survey(records_before=records, records_removed=len(self._dropped))

    def _frames(self, source: Source) -> Iterator[tuple[Span, memoryview]]:
        """Yield the good frames of a segment up to its end, or to where it is damaged."""
        segment = Segment(self._disk, self._directory, source.base_offset)
        scan = segment.scan(Position(0))
        reached = source.base_offset
        for _, span in scan:
            if self.is_cancelled:
                raise ShuttingDownError("the compaction was called off")
            if span.header.offset != reached or reached >= source.end_offset:
                break
            reached = span.end_offset
            yield span, scan.chunk[span.start : span.end]
        if reached != source.end_offset:
            self._damaged.add(source.base_offset)

    # Writing.

    def write_next(self) -> Swap | None:
        """Write the next compacted segment beside the log, durably; None when all is done."""
        while self._next < len(self._sources):
            if self._is_worth_it(self._next):
                return self._write()
            self._next += 1
        return None

    def discard(self) -> None:
        """Remove what was written and not put in place."""
        remove_cleaned(self._disk, self._directory)

    def _is_worth_it(self, place: int) -> bool:
        source = self._sources[place]
        if source.base_offset in self._damaged:
            return False
        if self._dropped.range_cardinality(source.base_offset, source.end_offset):
            return True
        return self._goes_on(place + 1, source.size)

    def _goes_on(self, place: int, size: int) -> bool:
        """Return True if a segment has room behind what is written already."""
        if place == len(self._sources) or self._sources[place].base_offset in self._damaged:
            return False
        return size + self._sources[place].size <= self._segment_bytes

    def _write(self) -> Swap:
        first = self._next
        base = self._sources[first].base_offset
        remove_cleaned(self._disk, self._directory)
        writer = _Writer(Segment(self._disk, self._directory, base, mark=CLEANED))
        while True:
            source = self._sources[self._next]
            for span, frame in self._frames(source):
                if not span.header.is_hole:
                    kept = keep_rows(span.header, frame, rows=span.rows, dropped=self._dropped)
                    writer.write(kept)
            if source.base_offset in self._damaged:
                raise GoQueueError(f"{self._directory}: segment {base} was damaged meanwhile")
            self._next += 1
            if not self._goes_on(self._next, writer.size):
                break
        writer.finish(source.end_offset)
        self._disk.sync_directory(self._directory)
        return Swap(
            base_offset=base,
            replaced=tuple(one.base_offset for one in self._sources[first : self._next]),
        )


class _Writer:
    """Writes what stays into a new segment, with holes in the place of what goes."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._reached = segment.base_offset
        self._pending: list[Kept] = []
        self._pending_bytes = 0
        segment.create()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._segment.size + self._pending_bytes

    def write(self, frames: Iterator[Kept]) -> None:
        """Append frames that stay."""
        for kept in frames:
            if not kept.rows:
                # It stood for sequence numbers only, which the producers' snapshot knows.
                continue
            self._fill(kept.offset)
            self._add(kept)
            self._reached = Offset(kept.offset + kept.rows)

    def _fill(self, end_offset: Offset) -> None:
        for offset, rows, frame in encode_holes(self._reached, end_offset):
            self._add(Kept(offset, rows, 0, frame))

    def _add(self, kept: Kept) -> None:
        self._pending.append(kept)
        self._pending_bytes += len(kept.frame)
        # Index entries are made for what is appended together, so it is not more than they want.
        if self._pending_bytes >= INDEX_INTERVAL_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        self._segment.append(
            Appending(
                buffers=[kept.frame for kept in self._pending],
                size=self._pending_bytes,
                first_offset=self._pending[0].offset,
                rows=sum(kept.rows for kept in self._pending),
                timestamp_ns=max(kept.timestamp_ns for kept in self._pending),
            )
        )
        self._pending = []
        self._pending_bytes = 0

    def finish(self, end_offset: Offset) -> None:
        """Make the segment end where those it replaces did, durably."""
        self._fill(end_offset)
        self._flush()
        self._segment.sync()
        self._segment.mark_end()
        self._segment.index.seal()
        self._segment.close()
