"""Pieces of logs that were read for a queue a moment ago, and will be wanted again.

A poll takes some messages of a frame and the next poll others: where keys are in order or polls are
small, each frame is wanted many times. All ledgers share a few MiB, everything counted: the bytes
that were read, the objects made of them and the columns that were unpacked. What is compacted or
deleted in the log is not found here any more.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from goqueue.base.ids import Offset
from goqueue.core.record.batch import ALIGNMENT_BYTES, batch_fields, decode_batch
from goqueue.core.record.cut import SingleRows, row_frame
from goqueue.core.record.frame import CONTROL, Buffer, FrameHeader, read_header
from goqueue.runtime.log.partition import Partition
from goqueue.storage.log_reader import Piece
from goqueue.storage.segment import Segment

PIECE_BYTES: Final = 1_024
"""What a piece takes beside its frames: lists, views, its place here."""
FRAME_BYTES: Final = 640
"""What a frame takes beside its bytes: the header and the view, as objects."""
BATCH_BYTES: Final = 5 * 1_024
"""What a batch takes beside its bytes, once its columns were looked at."""


class StoredFrame:
    """One frame of the log. Its columns are decoded once."""

    __slots__ = (
        "_batch", "_plain", "beside_bytes", "column_set", "first_timestamp_us", "frame", "header",
        "rows",
    )  # fmt: skip

    def __init__(self, header: FrameHeader, frame: memoryview) -> None:
        self.header = header
        self.frame = frame
        self.rows = 1
        self.column_set = self.first_timestamp_us = 0
        self.beside_bytes = FRAME_BYTES
        """What objects and columns take beside the frame. Most columns lie in it; some must be
        unpacked or moved."""
        if header.is_batch:
            fields = batch_fields(header, frame)
            self.rows, self.column_set = fields.rows, fields.column_set
            self.first_timestamp_us = fields.first_timestamp_us
            self.beside_bytes = BATCH_BYTES
            is_aligned = pa.py_buffer(frame).address % ALIGNMENT_BYTES == 0
            if fields.compression is not None or not is_aligned:
                self.beside_bytes += fields.raw_size
        self._batch: pa.RecordBatch | None = None
        self._plain: SingleRows | None = None

    def __repr__(self) -> str:
        return f"<StoredFrame at {self.header.offset}: {self.rows} messages>"

    @property
    def is_message(self) -> bool:
        """Tell whether the frame holds messages."""
        return not self.header.flags & CONTROL and self.rows > 0

    @property
    def batch(self) -> pa.RecordBatch:
        """Return the messages of a batch."""
        if self._batch is None:
            self._batch = decode_batch(self.header, self.frame)
        return self._batch

    def row(self, offset: int) -> Buffer:
        """Return one message of a batch as a row frame."""
        row = offset - self.header.offset
        frame = None
        if not self.column_set:
            if self._plain is None:
                self._plain = SingleRows(self.batch)
            frame = self._plain.frame(row, Offset(offset))
        return frame or row_frame(self.batch, row, Offset(offset))

    def move_to(self, frame: memoryview) -> None:
        """Lie elsewhere in memory; the columns are those of the old place, so they go."""
        self.frame = frame
        self._batch = None
        self._plain = None


def _frames_in(frames: memoryview) -> Iterator[StoredFrame]:
    position = 0
    while position < len(frames):
        header = read_header(frames, position)
        yield StoredFrame(header, frames[position : position + header.size])
        position += header.size


class StoredPiece:
    """Checked frames that hold everything from one offset to another."""

    __slots__ = (
        "_beside_bytes", "_needed_bytes", "_starts", "end_offset", "frames", "segment", "size",
        "start_offset",
    )  # fmt: skip

    def __init__(self, piece: Piece, *, start_offset: Offset, segment: Segment) -> None:
        self.start_offset = start_offset
        self.end_offset = piece.next_offset
        self.frames = list(_frames_in(piece.frames))
        self._starts = [frame.header.offset for frame in self.frames]
        self.segment = segment
        self._needed_bytes = len(piece.frames)
        self._beside_bytes = PIECE_BYTES + sum(frame.beside_bytes for frame in self.frames)
        # A view of a part keeps all of what was read.
        self.size = memoryview(piece.frames.obj).nbytes + self._beside_bytes

    def __repr__(self) -> str:
        return f"<StoredPiece from {self.start_offset} to {self.end_offset}>"

    def between(self, start: int, end: int) -> list[StoredFrame]:
        """Return the frames that may hold messages of a half-open range."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        return self.frames[first : bisect_left(self._starts, end, first)]

    def move_out(self) -> None:
        """Take memory of its own if most of what was read around the frames is not needed."""
        needed = self._needed_bytes
        if self.size - self._beside_bytes <= 2 * needed:
            return
        # Batches must lie as they lay, so that their columns need not be moved.
        shift = pa.py_buffer(self.frames[0].frame).address % ALIGNMENT_BYTES
        memory = np.empty(shift + needed, np.uint8).data[shift:]
        position = 0
        for one in self.frames:
            end = position + len(one.frame)
            memory[position:end] = one.frame
            one.move_to(memory[position:end])
            position = end
        self.size = shift + needed + self._beside_bytes


class RecentPieces:
    """The pieces that were wanted last, up to a number of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pieces: OrderedDict[tuple[Partition, Offset], StoredPiece] = OrderedDict()
        self._starts: dict[Partition, list[Offset]] = {}
        self._size = 0

    def __repr__(self) -> str:
        return f"<RecentPieces: {len(self._pieces)}, {self._size} bytes>"

    @property
    def size_bytes(self) -> int:
        """The memory that is taken."""
        return self._size

    async def read(
        self, partition: Partition, offset: Offset, *, end_offset: Offset, bytes_max: int
    ) -> StoredPiece:
        """Return a piece that begins at or before an offset, read from the log if it must be."""
        found = self.find(partition, offset)
        if found is not None:
            return found
        piece = await partition.read(offset, end_offset=end_offset, bytes_max=bytes_max)
        segment = partition.log.segment_of(offset)
        stored = StoredPiece(piece, start_offset=offset, segment=segment)
        if stored.frames and not partition.is_closed:
            self._put(partition, stored)
        return stored

    def keep(self, partition: Partition, stored: StoredPiece) -> None:
        """Keep a piece of which more will be wanted, and no more memory than it needs."""
        is_kept = self._pieces.get((partition, stored.start_offset)) is stored
        before = stored.size
        stored.move_out()
        if is_kept:
            self._size += stored.size - before

    def drop(self, partition: Partition, stored: StoredPiece) -> None:
        """Forget a piece: nobody will want it again."""
        known = self._pieces.pop((partition, stored.start_offset), None)
        if known is None:
            return
        self._size -= known.size
        starts = self._starts[partition]
        starts.remove(stored.start_offset)
        if not starts:
            del self._starts[partition]

    def forget(self, partition: Partition) -> None:
        """Forget everything of a partition that is gone."""
        for start in list(self._starts.get(partition, ())):
            self.drop(partition, self._pieces[partition, start])

    def find(self, partition: Partition, offset: int) -> StoredPiece | None:
        """Return a piece that holds an offset and is still part of the log, if there is one."""
        starts = self._starts.get(partition)
        place = bisect_right(starts, offset) if starts else 0
        if not starts or not place:
            return None
        stored = self._pieces[partition, starts[place - 1]]
        if offset >= stored.end_offset:
            return None
        if not partition.log.holds(stored.segment):
            self.drop(partition, stored)
            return None
        self._pieces.move_to_end((partition, stored.start_offset))
        return stored

    def _put(self, partition: Partition, stored: StoredPiece) -> None:
        known = self._pieces.get((partition, stored.start_offset))
        if known is not None:
            self.drop(partition, known)
        self._pieces[partition, stored.start_offset] = stored
        insort(self._starts.setdefault(partition, []), stored.start_offset)
        self._size += stored.size
        while self._size > self._bytes_max:
            (owner, _), oldest = next(iter(self._pieces.items()))
            self.drop(owner, oldest)
