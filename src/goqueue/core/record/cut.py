"""Stored frames with only some of their messages, each under its right offset.

Shape: codec. A frame kept whole is passed as it lies, one with nothing to keep is dropped; what is
kept of a batch goes out in runs, as batch frames or, where a run is short, as row frames.
"""

import struct
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_HEADER_BYTES
from goqueue.base.units import NS_PER_US
from goqueue.core.record.batch import BATCH_OUTLINE, batch_fields, decode_batch, pack_batch
from goqueue.core.record.frame import (
    BATCH,
    CONTROL,
    HOLE,
    OUTLINE,
    TOMBSTONE,
    Buffer,
    FrameHeader,
    encode_frame,
    read_header,
)
from goqueue.core.record.repack import ROWS_AS_BATCH_MIN, drafts_in
from goqueue.core.record.row import encode_row
from goqueue.core.record.stamp import NO_STAMP

_PLACE: Final = struct.Struct("<i")


def cut_frames(frames: memoryview, keep: BitMap64) -> list[Buffer]:
    """Return checked frames with the messages whose offsets are kept, in order.

    Marks of transactions go as well: who is not shown everything has no use for them.
    """
    pieces: list[Buffer] = []
    position = whole = 0
    size, outline_of = len(frames), OUTLINE.unpack_from
    while position < size:
        _, flags, _, offset, _, key, value, headers = outline_of(frames, position)
        end = position + FRAME_HEADER_BYTES + key + value + headers
        rows = BATCH_OUTLINE.unpack_from(frames, end - headers)[2] if flags & BATCH else 1
        if flags & CONTROL:
            # A hole says where to go on, whether or not its own offsets are wanted.
            kept = int(flags == HOLE)
        elif rows == 1:
            kept = int(offset in keep)
        else:
            kept = keep.range_cardinality(offset, offset + rows)
        if kept < rows:
            if whole < position:
                pieces.append(frames[whole:position])
            if kept:
                frame = frames[position:end]
                pieces += _cut_batch(read_header(frame), frame, rows, keep)
            whole = end
        position = end
    if whole < position:
        pieces.append(frames[whole:position])
    return pieces


def _cut_batch(header: FrameHeader, frame: memoryview, rows: int, keep: BitMap64) -> list[Buffer]:
    wanted = BitMap64()
    wanted.add_range(header.offset, header.offset + rows)
    wanted &= keep
    numbers = np.array(wanted.to_array(), np.int64) - header.offset
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.concatenate((starts, [len(numbers)])))
    batch = decode_batch(header, frame)
    column_set = batch_fields(header, frame).column_set
    times = times_in(batch)
    pieces: list[Buffer] = []
    for start, count in zip(numbers[starts].tolist(), counts.tolist(), strict=True):
        run = batch.slice(start, count)
        offset = Offset(header.offset + start)
        if count < ROWS_AS_BATCH_MIN:
            pieces += [
                encode_row(draft, offset=Offset(offset + row))
                for row, draft in enumerate(drafts_in(run))
            ]
            continue
        packed = pack_batch(
            alone(run),
            column_set=column_set,
            first_timestamp_us=int(times[start : start + count].min()),
            last_timestamp_us=int(times[start : start + count].max()),
        )
        pieces.append(packed.frame(NO_STAMP, offset))
    return pieces


class SingleRows:
    """A batch of keys and values only, of which single messages are wanted as row frames.

    Columns are read where they lie: making a batch of one message takes ten times as long.
    """

    __slots__ = ("_keys", "_times", "_values")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._keys, self._values = map(_texts_of, batch.columns[:2])
        self._times = memoryview(batch.column("timestamp").buffers()[1]).cast("q")

    def __repr__(self) -> str:
        return f"<SingleRows of {len(self._times)} times>"

    def frame(self, row: int, offset: Offset) -> bytes | None:
        """Return a message as a frame; None where that needs headers."""
        key, value = _text_at(self._keys, row), _text_at(self._values, row)
        if key is not None and not key:
            return None
        return encode_frame(
            flags=TOMBSTONE if value is None else 0,
            offset=offset,
            timestamp_ns=self._times[row] * NS_PER_US,
            key=key or b"",
            value=value or b"",
        )


_Texts = tuple[memoryview | None, memoryview, memoryview]
"""A column of texts: which are there, where each begins, and all of them in a row."""


def _texts_of(column: pa.Array) -> _Texts:
    assert not column.offset, "a column from its beginning"
    is_there, places, texts = column.buffers()
    return (
        None if is_there is None else memoryview(is_there).cast("B"),
        memoryview(places).cast("i"),
        memoryview(b"" if texts is None else texts),
    )


def _text_at(column: _Texts, row: int) -> memoryview | None:
    is_there, places, texts = column
    if is_there is not None and not is_there[row >> 3] >> (row & 7) & 1:
        return None
    return texts[places[row] : places[row + 1]]


def row_frame(batch: pa.RecordBatch, row: int, offset: Offset) -> bytes:
    """Return one message of a batch as a row frame."""
    (draft,) = drafts_in(batch.slice(row, 1))
    return encode_row(draft, offset=offset)


def rows_at(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    """Return some rows of a batch, ascending; neighbours without copying them."""
    count = len(rows)
    first, last = (int(rows[0]), int(rows[-1])) if count else (0, -1)
    if last - first + 1 == count:
        return batch.slice(first, count)
    if first < 0 or last >= batch.num_rows:
        raise CorruptFrameError(f"row {last} of a batch of {batch.num_rows}")
    # Not by ``pa.array``, which would load pandas where that is installed.
    places = pa.py_buffer(np.ascontiguousarray(rows, np.int64))
    taken = pa.Array.from_buffers(pa.int64(), count, [None, places])
    take, unchecked = _taking()
    return take([batch, taken], unchecked)


@lru_cache
def _taking() -> tuple[Any, Any]:
    """Return what takes rows, and that nothing is to be checked again.

    Around them Arrow's own method spends as long as it takes to copy some hundred rows.
    """
    # As late as Arrow itself does it: loading this takes a tenth of a second.
    import pyarrow.compute as pc  # noqa: PLC0415 - see above

    return pc.get_function("take").call, pc.TakeOptions(boundscheck=False)


_TEXTS: Final = (0, 1)
"""The places of keys and values. Asking for them by name takes twice as long."""


def slice_bytes(batch: pa.RecordBatch) -> int:
    """Return how many bytes of keys and values there are in a slice of a batch."""
    total = 0
    for place in _TEXTS:
        column = batch.column(place)
        # Where the texts begin is written down; asking Arrow takes as long as some hundred rows.
        places = column.buffers()[1]
        (start,) = _PLACE.unpack_from(places, column.offset * _PLACE.size)
        (end,) = _PLACE.unpack_from(places, (column.offset + len(column)) * _PLACE.size)
        total += end - start
    return total


def times_in(batch: pa.RecordBatch) -> np.ndarray:
    """Return the times of messages, in microseconds."""
    column = batch.column("timestamp")
    # The column where it lies: a view of it and an array of the view are much more to make.
    start = column.offset
    return np.frombuffer(column.buffers()[1], np.int64, start + len(column))[start:]


def alone(run: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy: Arrow would fill up a slice with some bytes of the rows behind it."""
    columns = [pa.concat_arrays([column]) for column in run.columns]
    return pa.RecordBatch.from_arrays(columns, schema=run.schema)
