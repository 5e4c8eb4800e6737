"""The dedup ids of a partition that are still in their window, read back from its log."""

from collections.abc import Iterable, Iterator
from itertools import repeat

from goqueue.base.ids import Offset
from goqueue.base.units import US_PER_MS
from goqueue.core.log.scan import Span, Walk
from goqueue.core.producers.dedup import Remembered
from goqueue.core.record.batch import DEDUP_ID_COLUMN, batch_fields, decode_batch
from goqueue.core.record.columns import microseconds
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.row import Row
from goqueue.runtime.clock import Clock
from goqueue.runtime.log.partition import Partition
from goqueue.storage.segment import SCAN_CHUNK_BYTES

Dated = tuple[bytes | None, int]


def recall(partition: Partition, clock: Clock, window_ms: int) -> Iterator[Remembered]:
    """Yield the ids of messages that were appended within the window."""
    since_ms = clock.now_ms() - window_ms
    end_offset = partition.log.end_offset
    offset = partition.reader.find_recent(since_ms * US_PER_MS)
    while offset is not None and offset < end_offset:
        piece = partition.reader.read(offset, end_offset=end_offset, bytes_max=SCAN_CHUNK_BYTES)
        yield from recall_frames(partition, clock, window_ms, piece.frames, Walk(piece.frames))
        offset = piece.next_offset if piece.next_offset > offset else None


def recall_frames(
    partition: Partition, clock: Clock, window_ms: int, frames: memoryview, spans: Iterable[Span]
) -> Iterator[Remembered]:
    """Yield the ids of frames that were appended within the window, by steady time.

    Where a batch says when it was appended, that counts; otherwise the messages' own times do. A
    time that lies ahead counts as now, not as longer.
    """
    now_ms, shift_ms = clock.now_ms(), clock.shift_ms()
    for span in spans:
        frame = frames[span.start : span.end]
        for row, (dedup_id, time_ms) in enumerate(_dated(span, frame, now_ms - window_ms)):
            if dedup_id is not None:
                yield Remembered(
                    dedup_id=dedup_id,
                    partition=partition.name.partition,
                    offset=Offset(span.header.offset + row),
                    at_ms=min(time_ms, now_ms) - shift_ms,
                )


def _dated(span: Span, frame: memoryview, since_ms: int) -> Iterable[Dated]:
    """Return the dedup id of each message of a frame and when it came; nothing of old frames."""
    header = span.header
    if header.flags & CONTROL:
        return ()
    if not header.is_batch:
        row = Row(header, frame)
        return ((row.dedup_id, row.timestamp_us // US_PER_MS),)
    fields = batch_fields(header, frame)
    is_old = 0 < fields.appended_ms <= since_ms
    if is_old or not fields.column_set & DEDUP_ID_COLUMN:
        return ()
    batch = decode_batch(header, frame)
    dedup_ids = batch.column("dedup_id").to_pylist()
    if fields.appended_ms:
        return zip(dedup_ids, repeat(fields.appended_ms), strict=False)
    times = ((time_us or 0) // US_PER_MS for time_us in microseconds(batch.column("timestamp")))
    return zip(dedup_ids, times, strict=False)
