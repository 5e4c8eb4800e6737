"""Rows the broker writes itself, one or two at a time: keys and values made here need no check."""

from collections.abc import Sequence

from goqueue.base.errors import CorruptFrameError
from goqueue.base.ids import Offset
from goqueue.base.limits import FRAME_BYTES_MAX
from goqueue.core.record.check import CheckedFrame
from goqueue.core.record.frame import encode_frame, read_header
from goqueue.core.record.hole import encode_holes
from goqueue.core.record.stamp import NO_STAMP
from goqueue.runtime.log.partition import Partition
from goqueue.runtime.machine import unawaited


def append_own(
    partition: Partition, rows: Sequence[tuple[bytes, bytes]], *, timestamp_ns: int
) -> None:
    """Append keys and values in one write, or raise with nothing written.

    As ``Partition.append`` does with frames of the broker's own: they are written beyond the
    segment's size if need be.
    """
    partition.check_writable()
    log = partition.log
    offset = log.end_offset
    frames: list[bytes] = []
    size = 0
    for key, value in rows:
        frame = encode_frame(
            flags=0, offset=offset, timestamp_ns=timestamp_ns, key=key, value=value
        )
        if len(frame) > FRAME_BYTES_MAX:
            raise CorruptFrameError(f"a record of {len(frame)} bytes; no frame is so large")
        frames.append(frame)
        offset = Offset(offset + 1)
        size += len(frame)
    is_full = not log.fits(size)
    log.append_rows(frames, timestamp_ns=timestamp_ns)
    partition.note_appended(size, len(frames))
    if is_full:
        # Its failure is the partition's, which every later append is told.
        unawaited(partition.begin_roll())


def append_rowless(partition: Partition, frames: Sequence[CheckedFrame]) -> Offset:
    """Append frames without messages and an empty offset behind them; return that.

    Replicas copy a log by its offsets, and an ack waits for one. The sequence numbers that such
    frames stand for would otherwise be lost with the leader.
    """
    offset = partition.log.end_offset
    partition.append([*frames, *_holes(offset, Offset(offset + 1))])
    partition.queue.empty.add(offset)
    return offset


def append_holes(partition: Partition, end_offset: Offset) -> None:
    """Go on at an offset that lies ahead, in a log that has replicas: those get the holes, too."""
    partition.check_open()
    offset = partition.log.end_offset
    frames = _holes(offset, end_offset)
    # Too few replicas in sync are no reason to wait: nobody is told that this is committed.
    partition.log.append(frames)
    partition.note_appended(sum(len(one.frame) for one in frames), len(frames))
    partition.sync_soon()
    partition.queue.empty.add_range(offset, end_offset)


def _holes(offset: Offset, end_offset: Offset) -> list[CheckedFrame]:
    return [
        CheckedFrame(
            header=read_header(hole),
            frame=hole,
            rows=rows,
            stamp=NO_STAMP,
            sequence_count=0,
            first_timestamp_us=0,
        )
        for _, rows, hole in encode_holes(offset, end_offset)
    ]
