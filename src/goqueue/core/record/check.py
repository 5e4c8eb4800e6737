"""What a stranger's frame must pass before the log takes it.

Shape: codec. Order matters: lengths, checksum, fields, decompression within its declared size, the
metadata of the Arrow message, and only then Arrow itself with full validation.
"""

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from goqueue.base.errors import CorruptFrameError, InvalidRequestError, TooLargeError
from goqueue.base.limits import (
    DEDUP_ID_BYTES_MAX,
    DELAY_ID_BYTES_MAX,
    DELAY_MS_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_COUNT_MAX,
    KEY_BYTES_MAX,
    PRIORITIES,
    TIMESTAMP_AHEAD_MS_MAX,
    VALUE_BYTES_MAX,
)
from goqueue.base.units import DAY_MS, NS_PER_US, US_PER_MS, format_duration_ms
from goqueue.core.record.batch import BatchFields, batch_fields, batch_payload, read_batch
from goqueue.core.record.frame import (
    CONTROL,
    PRIORITY_NORMAL,
    TX_COMMIT,
    FrameHeader,
    read_header,
    verify,
)
from goqueue.core.record.headers import OWN_HEADERS_BYTES, RESERVED_PREFIX
from goqueue.core.record.queue_rows import (
    REFUSE,
    REPLACE,
    Delays,
    QueueRows,
    rows_of_batch,
    rows_of_row,
    validity,
)
from goqueue.core.record.row import Row
from goqueue.core.record.stamp import ProducerStamp, Repeat

_U16: Final = struct.Struct("<H")
_I32: Final = struct.Struct("<i")
_CONTINUATION: Final = -1
_RECORD_BATCH: Final = 3
_COMPRESSION_SLOT: Final = 10


class CheckedFrame(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A frame that may be appended: its bytes and all the broker wants to know of it."""

    header: FrameHeader
    frame: memoryview | bytes
    rows: int
    stamp: ProducerStamp
    sequence_count: int
    first_timestamp_us: int
    transaction: int = 0
    dedup_ids: tuple[bytes | None, ...] | None = None
    repeats: tuple[Repeat, ...] = ()
    lanes: tuple[int, ...] | None = None
    """Messages by priority, most urgent first; None where all are normal."""
    queue: QueueRows | None = None
    """What the queue treats in a way of its own; None for most frames."""


def check_frames(
    buffer: memoryview, *, now_ms: int, transaction: int = 0, by_broker: bool = False
) -> list[CheckedFrame]:
    """Take a buffer of whole frames apart, refusing all of it for any fault.

    Frames say which transaction they belong to; it must be the one that is being published in. The
    broker's own rows may carry headers of its own, and a few more than others.
    """
    frames: list[CheckedFrame] = []
    position = 0
    while position < len(buffer):
        header = read_header(buffer, position)
        frame = buffer[position : position + header.size]
        verify(frame, header)
        if header.flags & (CONTROL | TX_COMMIT):
            raise InvalidRequestError("control frames are written by the broker only")
        if header.is_batch:
            checked = _check_batch(header, frame)
        else:
            checked = _check_row(header, frame, by_broker=by_broker)
        if checked.transaction != transaction:
            raise InvalidRequestError("a frame belongs to another transaction than its request")
        if not by_broker:
            # What the broker moves keeps its time, however the wall clock was set since.
            _check_time(checked, now_ms)
        if checked.queue is not None and checked.queue.delays is not None:
            _check_delays(checked.queue.delays, now_ms)
        frames.append(checked)
        position += header.size
    if not frames:
        raise InvalidRequestError("at least one message required")
    return frames


def _check_row(header: FrameHeader, frame: memoryview, *, by_broker: bool) -> CheckedFrame:
    row = Row(header, frame)
    _bound("value", header.value_size, VALUE_BYTES_MAX)
    if not by_broker:
        row.check_headers()
    if row.deliver_at_us is not None and row.deliver_at_us < 0:
        raise InvalidRequestError("deliver_at lies before 1970")
    if row.dedup_id is not None:
        _bound("dedup_id", len(row.dedup_id), DEDUP_ID_BYTES_MAX)
    stored: memoryview | bytes = frame
    if not header.value_size:
        stored = row.marked()
        header = read_header(stored)
    return CheckedFrame(
        header=header,
        frame=stored,
        rows=1,
        stamp=row.stamp,
        sequence_count=1,
        first_timestamp_us=row.timestamp_us,
        dedup_ids=None if row.dedup_id is None else (row.dedup_id,),
        lanes=_ROW_LANES[header.priority],
        queue=rows_of_row(row),
    )


def _check_batch(header: FrameHeader, frame: memoryview) -> CheckedFrame:
    fields = batch_fields(header, frame)
    if fields.rows == 0:
        raise InvalidRequestError("at least one message required")
    if fields.sequence_count != fields.rows or fields.repeats:
        raise InvalidRequestError("a batch may not claim repeats")
    payload = batch_payload(fields, header, frame)
    _refuse_inner_compression(memoryview(payload))
    batch = read_batch(payload, fields.column_set)
    dedup_ids = _check_columns(batch, fields, header)
    return CheckedFrame(
        header=header,
        frame=frame,
        rows=fields.rows,
        stamp=fields.stamp,
        sequence_count=fields.sequence_count,
        first_timestamp_us=fields.first_timestamp_us,
        transaction=fields.transaction,
        dedup_ids=dedup_ids,
        lanes=_lanes(batch),
        queue=rows_of_batch(batch, fields.column_set),
    )


def _lanes(batch: pa.RecordBatch) -> tuple[int, ...] | None:
    if "priority" not in batch.schema.names:
        return None
    return count_lanes(batch.column("priority").to_pylist())


def count_lanes(priorities: Iterable[int]) -> tuple[int, ...]:
    """Return how many messages there are of each priority, most urgent first."""
    counts = Counter(priorities)
    return tuple(counts[lane] for lane in range(PRIORITIES))


def _refuse_inner_compression(payload: memoryview) -> None:
    """Refuse an Arrow message whose buffers are compressed: their sizes are not ours to bound.

    Walks the flatbuffer by hand: message table, then record batch table, then its vtable.
    """
    try:
        continuation = _I32.unpack_from(payload)[0]
        root = 8 + _I32.unpack_from(payload, 8)[0]
        message_slots = root - _I32.unpack_from(payload, root)[0]
        kind = payload[root + _slot(payload, message_slots, 6)]
        header = root + _slot(payload, message_slots, 8)
        table = header + _I32.unpack_from(payload, header)[0]
        compression = _slot(payload, table - _I32.unpack_from(payload, table)[0], _COMPRESSION_SLOT)
    except (struct.error, IndexError) as error:
        raise CorruptFrameError("batch is not an Arrow message") from error
    # Without the mark Arrow would look for an older layout, four bytes before this one.
    if continuation != _CONTINUATION or kind != _RECORD_BATCH or compression:
        raise CorruptFrameError("batch is not an uncompressed Arrow record batch")


def _slot(payload: memoryview, vtable: int, slot: int) -> int:
    if vtable < 0 or slot + 2 > _U16.unpack_from(payload, vtable)[0]:
        return 0
    return int(_U16.unpack_from(payload, vtable + slot)[0])


def _check_columns(
    batch: pa.RecordBatch, fields: BatchFields, header: FrameHeader
) -> tuple[bytes | None, ...] | None:
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise CorruptFrameError(f"batch does not validate: {error}") from error
    if batch.num_rows != fields.rows:
        raise CorruptFrameError(f"batch holds {batch.num_rows} rows and declares {fields.rows}")
    # A field's length cannot exceed the batch that holds it, so small batches skip these.
    if fields.raw_size > KEY_BYTES_MAX:
        _bound("key", _longest(batch.column("key")), KEY_BYTES_MAX)
    if fields.raw_size > VALUE_BYTES_MAX:
        _bound("value", _longest(batch.column("value")), VALUE_BYTES_MAX)
    _check_times(batch.column("timestamp"), fields, header)
    return _check_optional_columns(batch, fields)


def _check_times(times: pa.Array, fields: BatchFields, header: FrameHeader) -> None:
    if times.null_count:
        raise CorruptFrameError("timestamp: every message has one")
    numbers = np.frombuffer(times.buffers()[1], np.int64, fields.rows)
    # The functions themselves: the methods of an array add a call in Python to each.
    if int(np.minimum.reduce(numbers)) != fields.first_timestamp_us:
        raise CorruptFrameError("batch does not begin at the time it declares")
    if int(np.maximum.reduce(numbers)) * NS_PER_US != header.timestamp_ns:
        raise CorruptFrameError("batch does not end at the time it declares")


def _check_optional_columns(
    batch: pa.RecordBatch, fields: BatchFields
) -> tuple[bytes | None, ...] | None:
    """Check what only some batches have; return the dedup ids."""
    names = batch.schema.names
    if "headers" in names:
        _check_headers(batch.column("headers"), fields.raw_size)
    if "priority" in names:
        _check_priorities(batch.column("priority"))
    if "deliver_at" in names:
        _check_due_times(batch.column("deliver_at"))
    if "dedup_id" not in names:
        return None
    column = batch.column("dedup_id")
    _bound("dedup_id", _longest(column), DEDUP_ID_BYTES_MAX)
    return tuple(column.to_pylist())


def _check_priorities(column: pa.Array) -> None:
    numbers = np.frombuffer(column.buffers()[1], np.int8, len(column))
    if column.null_count or int(numbers.min()) < 0 or int(numbers.max()) >= PRIORITIES:
        raise InvalidRequestError(
            "invalid priority: must be one of critical, high, normal, low, background"
        )


def _check_due_times(column: pa.Array) -> None:
    if column.null_count == len(column):
        return
    times_us = np.frombuffer(column.buffers()[1], np.int64, len(column))
    if column.null_count:
        times_us = times_us[validity(column)]
    if int(times_us.min()) < 0:
        raise InvalidRequestError("deliver_at lies before 1970")


def _check_headers(column: pa.Array, raw_size: int) -> None:
    names = column.keys
    if len(names) == 0:
        return
    # Every name and value has an offset of four bytes, so there cannot be more of them than that.
    if max(len(names), len(column.items)) * 4 > raw_size:
        raise CorruptFrameError("headers: more of them than the batch has room for")
    if names.null_count or column.items.null_count:
        raise CorruptFrameError("headers: names and values may not be null")
    if _has_reserved(names):
        raise InvalidRequestError("headers: names beginning with '__' are reserved")
    entries = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1)
    if int(np.diff(entries).max()) > HEADERS_COUNT_MAX:
        raise TooLargeError(f"headers: more than {HEADERS_COUNT_MAX} on one message")
    if raw_size <= HEADERS_BYTES_MAX - OWN_HEADERS_BYTES:
        return
    name_ends = np.frombuffer(names.buffers()[1], np.int32, len(names) + 1)
    value_ends = np.frombuffer(column.items.buffers()[1], np.int32, len(names) + 1)
    sizes = np.diff(name_ends[entries]) + np.diff(value_ends[entries]) + 4 * np.diff(entries)
    _bound("headers", int(sizes.max()) + 2, HEADERS_BYTES_MAX - OWN_HEADERS_BYTES)


def _has_reserved(names: pa.Array) -> bool:
    """Return True if a name begins with the broker's prefix. Arrow's functions would cost 13 MB."""
    ends = np.frombuffer(names.buffers()[1], np.int32, len(names) + 1)
    starts = ends[:-1][np.diff(ends) >= len(RESERVED_PREFIX)]
    if not len(starts):
        return False
    text = np.frombuffer(names.buffers()[2], np.uint8)
    is_reserved = np.ones(len(starts), bool)
    for place, letter in enumerate(RESERVED_PREFIX.encode()):
        is_reserved &= text[starts + place] == letter
    return bool(is_reserved.any())


def _check_time(frame: CheckedFrame, now_ms: int) -> None:
    latest_us = (now_ms + TIMESTAMP_AHEAD_MS_MAX) * US_PER_MS
    if frame.first_timestamp_us < 0 or frame.header.timestamp_ns // NS_PER_US > latest_us:
        raise InvalidRequestError(
            f"timestamp lies before 1970 or more than {TIMESTAMP_AHEAD_MS_MAX // DAY_MS} day ahead"
        )


def _check_delays(delays: Delays, now_ms: int) -> None:
    if int(delays.due_ms.max()) > now_ms + DELAY_MS_MAX:
        raise InvalidRequestError(
            f"deliver_at lies more than {format_duration_ms(DELAY_MS_MAX)} ahead"
        )
    for _, name in delays.ids:
        if not 0 < len(name) <= DELAY_ID_BYTES_MAX:
            raise InvalidRequestError(
                f"delay_id: {len(name)} bytes; 1 to {DELAY_ID_BYTES_MAX} are allowed"
            )
    for _, wish in delays.wishes:
        if wish not in {REFUSE, REPLACE}:
            raise InvalidRequestError("on_conflict: must be error or replace")


def _longest(column: pa.Array) -> int:
    ends = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1)
    return int(np.diff(ends).max())


def _bound(field: str, size: int, limit: int) -> None:
    if size > limit:
        raise TooLargeError(f"{field}: {size} bytes; the limit is {limit}")


_ROW_LANES: Final = tuple(
    None if lane == PRIORITY_NORMAL else count_lanes((lane,)) for lane in range(PRIORITIES)
)
"""The lanes of a single message, by its priority."""
