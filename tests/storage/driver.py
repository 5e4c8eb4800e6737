"""A partition log driven by hand: append, commit, read everything back."""

from collections.abc import Sequence

from pyroaring import BitMap64

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.base.units import DAY_MS
from goqueue.core.log.compaction import CompactionRules
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.check import check_frames
from goqueue.core.record.columns import messages_of
from goqueue.core.record.frame import CONTROL
from goqueue.core.record.message import Draft, Message
from goqueue.core.record.repack import frame_drafts, without_repeats
from goqueue.core.record.row import Row, encode_row
from goqueue.core.record.stamp import Repeat
from goqueue.storage.compaction import Compaction, Survey
from goqueue.storage.disk import Disk
from goqueue.storage.log_notes import Gap
from goqueue.storage.log_reader import LogReader
from goqueue.storage.partition_log import PartitionLog
from goqueue.storage.swap import forget_swap, write_checkpoint
from tests.frames import split_frames

NOW_MS = 1_700_000_000_000
DIRECTORY = "logs/t/0"
TOPIC = TopicName("t")
ONE = PartitionId(0)
EVERYTHING = 2**40


def row(value: bytes = b"v", *, timestamp_us: int = 0) -> bytes:
    """Return the frame of one message."""
    return encode_row(Draft(value=value, timestamp_us=timestamp_us))


def batch(count: int, *, size: int = 10, timestamp_us: int = 0) -> bytes:
    """Return the frame of several messages, each told apart by its number."""
    return frame_drafts(
        [Draft(value=b"%d " % n + bytes(size), timestamp_us=timestamp_us) for n in range(count)]
    )


def messages_in(frames: memoryview | bytes) -> list[Message]:
    """Return the messages of checked frames."""
    messages: list[Message] = []
    for header, frame in split_frames(memoryview(frames)):
        if header.is_batch:
            messages += messages_of(
                decode_batch(header, frame),
                topic=TOPIC,
                partition=ONE,
                first_offset=header.offset,
            )
        elif not header.flags & CONTROL:
            messages.append(Row(header, frame).message(TOPIC, ONE))
    return messages


class LogDriver:
    """Does what a partition does with its log, without a loop."""

    def __init__(self, disk: Disk, *, segment_bytes: int = 1_000_000) -> None:
        self.disk = disk
        disk.make_directory(DIRECTORY)
        self.log = PartitionLog(disk, DIRECTORY, segment_bytes=segment_bytes)
        self.reader = LogReader(self.log)

    def append(self, frames: bytes) -> Offset:
        """Write frames, rolling as needed."""
        checked = check_frames(memoryview(frames), now_ms=NOW_MS)
        if not self.log.fits(sum(len(frame.frame) for frame in checked)):
            self.log.roll()
        return self.log.append(checked)

    def append_empty(self, drafts: Sequence[Draft]) -> Offset:
        """Write a frame that holds no message, as a batch of nothing but repeats does."""
        checked = check_frames(memoryview(frame_drafts(drafts)), now_ms=NOW_MS)
        repeats = [Repeat(number, ONE, Offset(0)) for number in range(len(drafts))]
        empty = without_repeats(checked, repeats)
        if not self.log.fits(len(empty.frame)):
            self.log.roll()
        return self.log.append([empty])

    def commit(self) -> None:
        """Make everything durable, or note that it failed."""
        commit = self.log.begin_commit()
        error: StorageFailedError | None = None
        try:
            commit.run()
        except StorageFailedError as failure:
            error = failure
        self.log.finish_commit(commit, error)

    def publish(self, frames: bytes) -> Offset:
        """Write frames durably."""
        base = self.append(frames)
        self.commit()
        return base

    def compact(
        self,
        *,
        now_ms: int = NOW_MS,
        tombstone_retention_ms: int = DAY_MS,
        dedup_window_ms: int = 0,
        keys_max: int = 1_000,
        hidden: BitMap64 | None = None,
        cancelled: BitMap64 | None = None,
    ) -> Survey:
        """Compact everything that is sealed, as the broker does."""
        rules = CompactionRules(
            now_ms=now_ms,
            tombstone_retention_ms=tombstone_retention_ms,
            dedup_window_ms=dedup_window_ms,
            keys_max=keys_max,
        )
        compaction = Compaction(self.disk, self.log, rules, hidden=hidden, cancelled=cancelled)
        survey = compaction.survey()
        self.log.finish_swap()
        while (swap := compaction.write_next()) is not None:
            self.log.replace(swap)
            forget_swap(self.disk, DIRECTORY)
        write_checkpoint(self.disk, DIRECTORY, compaction.end_offset)
        self.log.cleaned_offset = compaction.end_offset
        return survey

    def seal(self) -> None:
        """Begin a new segment, so that all there is can be compacted."""
        if not self.log.is_empty:
            self.log.roll()

    def read(
        self, offset: int | None = None, *, bytes_max: int = EVERYTHING
    ) -> tuple[list[Message], list[Gap]]:
        """Read from an offset (or the start) to the end as a patient reader would."""
        messages: list[Message] = []
        gaps: list[Gap] = []
        at = self.log.start_offset if offset is None else Offset(offset)
        end = self.log.end_offset
        while at < end:
            piece = self.reader.read(at, end_offset=end, bytes_max=bytes_max)
            messages += [one for one in messages_in(piece.frames) if one.offset >= at]
            gaps += piece.gaps
            assert piece.next_offset > at, f"the reader is stuck at {at}"
            at = piece.next_offset
        return messages, gaps
