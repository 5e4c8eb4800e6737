"""From drafts to frames and back: where messages, not batches, must be touched.

Shape: codec. Used for messages that come one by one and where a repeat is left out of a batch.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from goqueue.base.errors import TooLargeError
from goqueue.core.record.batch import REPEATS_MAX, decode_batch, pack_batch, with_append_time
from goqueue.core.record.check import CheckedFrame, count_lanes
from goqueue.core.record.columns import batch_of_drafts, microseconds
from goqueue.core.record.frame import FrameHeader, read_header
from goqueue.core.record.message import Draft, Priority
from goqueue.core.record.queue_rows import rows_of_batch
from goqueue.core.record.row import PackedRows, Row
from goqueue.core.record.stamp import NO_STAMP, ProducerStamp, Repeat

ROWS_AS_BATCH_MIN: Final = 4
"""From this many messages on a batch frame is cheaper to check than row frames (measured)."""


def frame_drafts(drafts: Sequence[Draft], stamp: ProducerStamp = NO_STAMP) -> bytes:
    """Turn messages into one batch frame, or into row frames when they are few."""
    if len(drafts) < ROWS_AS_BATCH_MIN:
        return PackedRows(drafts).frame(stamp)
    batch, column_set = batch_of_drafts(drafts)
    times = [draft.timestamp_us for draft in drafts]
    return pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=min(times),
        last_timestamp_us=max(times),
    ).frame(stamp)


def drafts_of(header: FrameHeader, frame: memoryview | bytes) -> list[Draft]:
    """Return the messages of a checked frame."""
    if not header.is_batch:
        return [Row(header, frame).draft()]
    return drafts_in(decode_batch(header, frame))


def drafts_in(batch: pa.RecordBatch) -> list[Draft]:
    """Return the messages of a batch."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    blank = [None] * batch.num_rows
    headers = columns["headers"].to_pylist() if "headers" in columns else blank
    priorities = columns["priority"].to_pylist() if "priority" in columns else blank
    due = microseconds(columns["deliver_at"]) if "deliver_at" in columns else blank
    dedup_ids = columns["dedup_id"].to_pylist() if "dedup_id" in columns else blank
    return [
        Draft(
            key=key,
            value=value,
            timestamp_us=timestamp_us or 0,
            headers=dict(pairs) if pairs else None,
            priority=Priority.NORMAL if priority is None else priority,
            deliver_at_us=deliver_at_us,
            dedup_id=dedup_id,
        )
        for key, value, timestamp_us, pairs, priority, deliver_at_us, dedup_id in zip(
            columns["key"].to_pylist(),
            columns["value"].to_pylist(),
            microseconds(columns["timestamp"]),
            headers,
            priorities,
            due,
            dedup_ids,
            strict=True,
        )
    ]


def with_append_times(frames: Sequence[CheckedFrame], now_ms: int) -> list[CheckedFrame]:
    """Return frames that say when they are appended. Rows become batches, which can say it."""
    batches = [one if one.header.is_batch else without_repeats([one], ()) for one in frames]
    return [
        msgspec.structs.replace(one, frame=with_append_time(one.header, one.frame, now_ms))
        for one in batches
    ]


def without_repeats(frames: Sequence[CheckedFrame], repeats: Sequence[Repeat]) -> CheckedFrame:
    """Return one batch with the repeats left out and named in its fields.

    It may hold no message at all: then it stands in the log for its sequence numbers only.
    """
    # Only a producer whose repeats are recognised will ask again what became of these.
    told = repeats if frames[0].stamp.is_idempotent else ()
    if len(told) > REPEATS_MAX:
        raise TooLargeError(
            f"{len(told)} messages of one batch are repeats (dedup_id) or do not fit the schema;"
            f" the limit is {REPEATS_MAX}"
        )
    drafts = [draft for frame in frames for draft in drafts_of(frame.header, frame.frame)]
    left_out = {repeat.row for repeat in repeats}
    kept = [draft for row, draft in enumerate(drafts) if row not in left_out]
    times = [draft.timestamp_us for draft in kept or drafts]
    batch, column_set = batch_of_drafts(kept)
    raw = pack_batch(
        batch,
        column_set=column_set,
        first_timestamp_us=min(times),
        last_timestamp_us=max(times),
        sequence_count=len(drafts),
        repeats=told,
        transaction=frames[0].transaction,
    ).frame(frames[0].stamp)
    return msgspec.structs.replace(
        frames[0],
        header=read_header(raw),
        frame=raw,
        rows=len(kept),
        sequence_count=len(drafts),
        first_timestamp_us=min(times),
        repeats=tuple(repeats),
        lanes=count_lanes(draft.priority for draft in kept),
        queue=rows_of_batch(batch, column_set),
    )
