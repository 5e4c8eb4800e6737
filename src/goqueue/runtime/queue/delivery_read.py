"""Reading the messages a ledger has picked: frames of the log, cut where they hold much else."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.base.units import NS_PER_MS, NS_PER_US, KiB, MiB
from goqueue.core.delivery.key_numbers import key_number, key_numbers
from goqueue.core.delivery.picking import Pick
from goqueue.core.delivery.runs import (
    Numbers,
    Runs,
    Written,
    array_of,
    numbers_in,
    set_from,
    written_in,
)
from goqueue.core.record.batch import pack_batch
from goqueue.core.record.cut import alone, cut_frames, rows_at, slice_bytes, times_in
from goqueue.core.record.frame import Buffer
from goqueue.core.record.repack import ROWS_AS_BATCH_MIN
from goqueue.core.record.row import Row
from goqueue.core.record.stamp import NO_STAMP
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.queue.recent_pieces import RecentPieces, StoredFrame

NEIGHBOUR_OFFSETS: Final = 512
"""Picked messages that lie so near one another are read in one go."""
WHOLE_SHARE: Final = 2
"""A batch of which at least one in so many messages is picked is sent as it lies in the log; of
others the picked rows are gathered into one batch."""
GATHERED_BYTES_MAX: Final = 8 * MiB
"""What is gathered fits one batch, whatever Arrow puts between the columns."""
ROW_BYTES: Final = 16
"""What a message takes in its columns beside its key and its value."""
LOOK_BYTES: Final = 256 * KiB
RUN_NUMBERS: Final = 2
READ_BYTES_MIN: Final = 32 * KiB


class GatheredRows(NamedTuple):
    """Messages that lie apart from one another in the log, as one batch of their own."""

    batch: pa.RecordBatch
    column_set: int
    offsets: Written
    size: int
    """About how many bytes they take."""

    def frame(self) -> bytes:
        """Return the batch as a frame."""
        times = times_in(self.batch)
        return pack_batch(
            self.batch,
            column_set=self.column_set,
            first_timestamp_us=int(times.min()),
            last_timestamp_us=int(times.max()),
        ).frame(NO_STAMP)


class FoundMessages(NamedTuple):
    """What could be read of what was picked: frames as they lie in the log, and messages apart."""

    frames: list[Buffer]
    offsets: BitMap64
    gone: BitMap64
    expired: BitMap64
    apart: GatheredRows | None


def nothing_found() -> FoundMessages:
    """Return what is found where nothing was picked."""
    return FoundMessages([], BitMap64(), BitMap64(), BitMap64(), None)


class Gathered:
    """Rows of many batches that lie far apart, put together into one batch."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._has_slice = False
        self._column_set = 0
        self._offsets: list[Numbers] = []
        self.count = 0
        """How many messages were taken."""
        self._size = 0

    def take(self, stored: StoredFrame, offsets: Numbers) -> int | None:
        """Take some rows of a frame; return about their size, or None if they do not fit in."""
        if not stored.header.is_batch:
            return None
        if self._batches and stored.column_set != self._column_set:
            return None
        rows = rows_at(stored.batch, offsets - stored.header.offset)
        size = len(offsets) * ROW_BYTES + slice_bytes(rows)
        if stored.column_set:
            # Of neighbours these are the columns of the whole frame, of others just their own.
            is_slice = rows.num_rows == offsets[-1] - offsets[0] + 1
            size = int(rows.nbytes if is_slice else rows.get_total_buffer_size())
        if self._size + size > GATHERED_BYTES_MAX:
            return None
        self._column_set = stored.column_set
        self._batches.append(rows)
        self._offsets.append(offsets)
        self.count += len(offsets)
        self._has_slice |= bool(rows.num_rows == offsets[-1] - offsets[0] + 1)
        self._size += size
        return size

    def finish(self, order: Written | None) -> GatheredRows | None:
        """Return what was taken as one batch; ``order`` are its offsets where they are known."""
        if not self._batches:
            return None
        batch = self._batches[0]
        if len(self._batches) > 1:
            batch = pa.concat_batches(self._batches)
        elif self._has_slice:
            # It would keep the whole frame it lies in.
            batch = alone(batch)
        offsets = order or written_in(np.concatenate(self._offsets))
        return GatheredRows(batch, self._column_set, offsets, self._size)


class PickReader:
    """Reads picked messages of one partition, within a number of bytes."""

    def __init__(
        self, recent: RecentPieces, partition: Partition, pick: Pick, *, bytes_max: int
    ) -> None:
        self._recent = recent
        self._partition = partition
        self._pick = pick
        self._wanted = array_of(pick.offsets)
        self._first = int(self._wanted[0])
        self._is_small = len(self._wanted) < ROWS_AS_BATCH_MIN
        self._is_run = int(self._wanted[-1]) - self._first + 1 == len(self._wanted)
        self._left = bytes_max
        self._oldest_us = 0
        # About twice what a message takes here: reading more would be for nothing.
        log = partition.log
        self._message_bytes = 2 * log.size_bytes // max(log.end_offset - log.start_offset, 1)
        self._frames: list[Buffer] = []
        self._gathered = Gathered()
        self._found: list[Numbers] = []
        self._looked = BitMap64()
        self._expired = BitMap64()
        self._behind = Offset(0)

    async def read(self, *, oldest_us: int) -> FoundMessages:
        """Return the messages; what is older is left out, and 0 leaves nothing out."""
        self._oldest_us = oldest_us
        run = (self._first, self._first + len(self._wanted))
        for start, end in [run] if self._is_run else _clusters(self._wanted):
            # A frame that holds several clusters is read and sent once.
            offset = max(Offset(start), self._behind)
            while offset < end and self._left > 0:
                offset = await self._read_piece(offset, Offset(end))
        found, gone = self._pick.offsets, BitMap64()
        if sum(map(len, self._found)) < len(self._wanted):
            found = set_from(np.concatenate(self._found)) if self._found else BitMap64()
            # What was looked at and is not there, is not there any more.
            gone = (self._pick.offsets & self._looked) - found - self._expired
        return FoundMessages(self._frames, found, gone, self._expired, self._finish_gathered())

    def _finish_gathered(self) -> GatheredRows | None:
        order = self._pick.order
        # Packed or one run, an order is ascending, as is what was gathered.
        is_ascending = isinstance(order, bytes) or len(order) == RUN_NUMBERS
        is_all = is_ascending and self._gathered.count == len(self._wanted)
        return self._gathered.finish(order if is_all else None)

    async def _read_piece(self, offset: Offset, end: Offset) -> Offset:
        size = min(self._left, READ_BYTES_MIN + (end - offset) * self._message_bytes)
        # Who wants few messages will want those behind them next.
        until = self._partition.visible_offset if self._is_small else end
        piece = await self._recent.read(self._partition, offset, end_offset=until, bytes_max=size)
        frames = piece.between(offset, end)
        is_left = len(frames) < len(piece.frames)
        for stored in frames:
            if stored.is_message:
                is_left |= not self._take(stored)
        if is_left:
            self._recent.keep(self._partition, piece)
        else:
            self._recent.drop(self._partition, piece)
        following = max(min(piece.end_offset, end), offset + 1)
        # What may not be read yet is not gone.
        if offset < self._partition.visible_offset:
            self._looked.add_range(offset, following)
        return Offset(following)

    def _take(self, stored: StoredFrame) -> bool:
        """Take what is wanted of a frame; tell whether that was all."""
        offset, rows = stored.header.offset, stored.rows
        low, high = self._places(offset, offset + rows)
        if offset >= self._behind and low < high:
            self._behind = Offset(offset + rows)
            here = self._wanted[low:high]
            if self._oldest_us and stored.header.timestamp_ns // NS_PER_MS:
                here = self._leave_out_expired(stored, here)
            if len(here):
                self._found.append(here)
                self._send(stored, here)
        return high - low == rows

    def _places(self, start: int, end: int) -> tuple[int, int]:
        """Return where the wanted offsets of a half-open range begin and end."""
        if self._is_run:
            count = len(self._wanted)
            return (
                min(max(start - self._first, 0), count),
                min(max(end - self._first, 0), count),
            )
        low, high = self._wanted.searchsorted((start, end)).tolist()
        return low, high

    def _send(self, stored: StoredFrame, here: Numbers) -> None:
        offset, rows = stored.header.offset, stored.rows
        if len(here) * WHOLE_SHARE >= rows and self._is_clear(offset, rows):
            pieces: Sequence[Buffer] = [stored.frame]
        elif self._is_small and stored.header.is_batch:
            pieces = [stored.row(one) for one in here.tolist()]
        elif (size := self._gathered.take(stored, here)) is not None:
            self._left -= size
            return
        else:
            pieces = cut_frames(stored.frame, set_from(here))
        self._frames += pieces
        self._left -= sum(map(len, pieces))

    def _is_clear(self, offset: int, rows: int) -> bool:
        """Tell that no message of a frame is hidden: what is not due never leaves the broker."""
        queue = self._partition.queue
        return not any(
            offsets and offsets.range_cardinality(offset, offset + rows)
            for offsets in (queue.hidden, queue.cancelled, queue.tx.uncommitted, queue.tx.aborted)
        )

    def _leave_out_expired(self, stored: StoredFrame, here: Numbers) -> Numbers:
        header = stored.header
        if not header.is_batch:
            is_old = np.full(len(here), header.timestamp_ns // NS_PER_US < self._oldest_us)
        elif stored.first_timestamp_us >= self._oldest_us:
            return here
        else:
            times = times_in(stored.batch)
            is_old = times[here - header.offset] < self._oldest_us
        self._expired |= set_from(here[is_old])
        rest: Numbers = here[~is_old]
        return rest


def _clusters(wanted: Numbers) -> Iterator[tuple[int, int]]:
    """Return half-open ranges that hold some offsets, those near one another together."""
    (breaks,) = (wanted[1:] - wanted[:-1] > NEIGHBOUR_OFFSETS).nonzero()
    starts = [int(wanted[0]), *wanted[breaks + 1].tolist()]
    ends = [*(wanted[breaks] + 1).tolist(), int(wanted[-1]) + 1]
    return zip(starts, ends, strict=True)


class Keys(NamedTuple):
    """The numbers of the keys of some messages, in order, and the runs of their offsets."""

    numbers: Numbers
    runs: Runs

    def offsets(self) -> Numbers:
        """Return the offset of every key."""
        return numbers_in(self.runs)


async def read_keys(
    recent: RecentPieces, partition: Partition, offset: Offset
) -> tuple[Keys, Offset]:
    """Return the keys of messages from an offset on, and where to go on."""
    end = partition.visible_offset
    piece = await recent.read(partition, offset, end_offset=end, bytes_max=LOOK_BYTES)
    numbers: list[Numbers] = []
    runs: Runs = []
    for stored in piece.frames:
        first, behind = stored.header.offset, stored.header.offset + stored.rows
        if not stored.is_message or behind <= offset:
            continue
        if stored.header.is_batch:
            numbers.append(key_numbers(stored.batch.column("key"))[max(offset - first, 0) :])
        else:
            numbers.append(np.array([key_number(Row(stored.header, stored.frame).key)]))
        first = max(first, offset)
        if runs and runs[-1] == first:
            runs[-1] = behind
        else:
            runs.extend((first, behind))
    found = np.concatenate(numbers) if numbers else np.empty(0, np.int64)
    return Keys(found, runs), Offset(max(piece.end_offset, offset))
