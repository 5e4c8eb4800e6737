"""Reading the messages a ledger has picked: frames of the log, cut where they hold much else."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.units import NS_PER_MS, NS_PER_US, US_PER_MS, KiB
from goqueue.core.delivery.runs import Runs, runs_in, runs_of
from goqueue.core.record.batch import batch_fields, decode_batch, pack_batch
from goqueue.core.record.cut import cut_frames
from goqueue.core.record.frame import CONTROL, Buffer, FrameHeader, read_header
from goqueue.core.record.row import Row
from goqueue.core.record.stamp import NO_STAMP
from goqueue.runtime.partition import Partition

NEIGHBOUR_OFFSETS: Final = 512
"""Picked messages that lie so near one another are read in one go."""
WHOLE_SHARE: Final = 2
"""A batch of which at least one in so many messages is picked is sent as it lies in the log; of
others the picked rows are gathered into one batch."""
LOOK_BYTES: Final = 256 * KiB
READ_BYTES_MIN: Final = 32 * KiB


class Found(NamedTuple):
    """What could be read of what was picked.

    Where ``gathered`` has runs of offsets, the last frame is a batch of just those messages.
    """

    frames: list[Buffer]
    offsets: BitMap64
    gone: BitMap64
    expired: BitMap64
    gathered: Runs


class Stored(NamedTuple):
    """One frame of the log."""

    header: FrameHeader
    frame: memoryview
    rows: int

    @property
    def is_message(self) -> bool:
        """Tell whether the frame holds messages."""
        return not self.header.flags & CONTROL and self.rows > 0


def stored_in(frames: memoryview) -> Iterator[Stored]:
    """Yield checked frames with the number of their messages."""
    position = 0
    while position < len(frames):
        header = read_header(frames, position)
        end = position + header.size
        frame = frames[position:end]
        rows = batch_fields(header, frame).rows if header.is_batch else 1
        yield Stored(header, frame, rows)
        position = end


class Gathered:
    """Rows of many batches that lie far apart, put together into one batch."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._column_set = 0
        self._offsets: list[np.ndarray] = []

    def take(self, stored: Stored, here: BitMap64) -> int | None:
        """Take some rows of a frame; return about their size, or None if they do not fit in."""
        if not stored.header.is_batch:
            return None
        column_set = batch_fields(stored.header, stored.frame).column_set
        if self._batches and column_set != self._column_set:
            return None
        self._column_set = column_set
        offsets = np.array(here.to_array(), np.int64)
        rows = decode_batch(stored.header, stored.frame).take(
            pa.array(offsets - stored.header.offset)
        )
        self._batches.append(rows)
        self._offsets.append(offsets)
        return int(rows.nbytes)

    def runs(self) -> Runs:
        """Return the offsets of what was taken, in order."""
        return runs_in(np.concatenate(self._offsets)) if self._offsets else []

    def finish(self) -> bytes | None:
        """Return what was taken as one frame."""
        if not self._batches:
            return None
        batch = pa.concat_batches(self._batches)
        times = np.asarray(batch.column("timestamp").view(pa.int64()))
        return pack_batch(
            batch,
            column_set=self._column_set,
            first_timestamp_us=int(times.min()),
            last_timestamp_us=int(times.max()),
        ).frame(NO_STAMP)


class PickReader:
    """Reads picked messages of one partition, within a number of bytes."""

    def __init__(self, partition: Partition, wanted: BitMap64, *, bytes_max: int) -> None:
        self._partition = partition
        self._wanted = wanted
        self._left = bytes_max
        self._oldest_us = 0
        # About twice what a message takes here: reading more would be for nothing.
        log = partition.log
        self._message_bytes = 2 * log.size_bytes // max(log.end_offset - log.start_offset, 1)
        self._frames: list[Buffer] = []
        self._gathered = Gathered()
        self._found = BitMap64()
        self._looked = BitMap64()
        self._expired = BitMap64()
        self._behind = Offset(0)

    async def read(self, *, now_ms: int, ttl_ms: int) -> Found:
        """Return the messages; what is older than its time to live is left out."""
        self._oldest_us = (now_ms - ttl_ms) * US_PER_MS if ttl_ms else 0
        for start, end in _clusters(runs_of(self._wanted)):
            # A frame that holds several clusters is read and sent once.
            offset = max(Offset(start), self._behind)
            while offset < end and self._left > 0:
                offset = await self._read_piece(offset, Offset(end))
        # What was looked at and is not there, is not there any more.
        gone = (self._wanted & self._looked) - self._found - self._expired
        gathered = self._gathered.finish()
        if gathered is not None:
            self._frames.append(gathered)
        return Found(self._frames, self._found, gone, self._expired, self._gathered.runs())

    async def _read_piece(self, offset: Offset, end: Offset) -> Offset:
        size = min(self._left, READ_BYTES_MIN + (end - offset) * self._message_bytes)
        piece = await self._partition.read(offset, end_offset=end, bytes_max=size)
        for stored in stored_in(piece.frames):
            if stored.is_message:
                self._take(stored)
        following = max(min(piece.next_offset, end), offset + 1)
        self._looked.add_range(offset, following)
        return Offset(following)

    def _take(self, stored: Stored) -> None:
        offset, rows = stored.header.offset, stored.rows
        if offset < self._behind:
            return
        self._behind = Offset(offset + rows)
        count = self._wanted.range_cardinality(offset, offset + rows)
        if not count:
            return
        here = BitMap64()
        here.add_range(offset, offset + rows)
        if count < rows:
            here &= self._wanted
        if self._oldest_us and stored.header.timestamp_ns // NS_PER_MS:
            here = self._leave_out_expired(stored, here)
        if not here:
            return
        self._found |= here
        if len(here) * WHOLE_SHARE >= rows and self._is_clear(offset, rows):
            self._send([stored.frame])
            return
        size = self._gathered.take(stored, here)
        if size is None:
            self._send(cut_frames(stored.frame, here))
        else:
            self._left -= size

    def _send(self, pieces: Sequence[Buffer]) -> None:
        self._frames += pieces
        self._left -= sum(map(len, pieces))

    def _is_clear(self, offset: int, rows: int) -> bool:
        """Tell that no message of a frame is hidden: what is not due never leaves the broker."""
        queue = self._partition.queue
        return not any(
            offsets and offsets.range_cardinality(offset, offset + rows)
            for offsets in (queue.hidden, queue.cancelled, queue.tx.uncommitted, queue.tx.aborted)
        )

    def _leave_out_expired(self, stored: Stored, here: BitMap64) -> BitMap64:
        header = stored.header
        if not header.is_batch:
            is_old = header.timestamp_ns // NS_PER_US < self._oldest_us
            old = here.copy() if is_old else BitMap64()
        elif batch_fields(header, stored.frame).first_timestamp_us >= self._oldest_us:
            return here
        else:
            times = decode_batch(header, stored.frame).column("timestamp").view("int64")
            rows = np.flatnonzero(np.asarray(times) < self._oldest_us) + header.offset
            old = BitMap64(rows.astype(np.uint64)) & here
        self._expired |= old
        return here - old


def _clusters(runs: list[int]) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges that hold the runs, near ones together."""
    if not runs:
        return
    start, end = runs[0], runs[1]
    for place in range(2, len(runs), 2):
        if runs[place] - end > NEIGHBOUR_OFFSETS:
            yield start, end
            start = runs[place]
        end = runs[place + 1]
    yield start, end


async def read_keys(
    partition: Partition, offset: Offset
) -> tuple[list[tuple[Offset, list[bytes | None]]], Offset]:
    """Return the keys of messages from an offset on, frame by frame, and where to go on."""
    end = partition.visible_offset
    piece = await partition.read(offset, end_offset=end, bytes_max=LOOK_BYTES)
    found: list[tuple[Offset, list[bytes | None]]] = []
    for stored in stored_in(piece.frames):
        if not stored.is_message:
            continue
        if stored.header.is_batch:
            keys = decode_batch(stored.header, stored.frame).column("key").to_pylist()
        else:
            keys = [Row(stored.header, stored.frame).key]
        first = stored.header.offset
        if first < offset:
            keys = keys[offset - first :]
            first = offset
        found.append((first, keys))
    return found, Offset(max(piece.next_offset, offset))
