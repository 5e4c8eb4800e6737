"""A data directory read without a broker, whether or not one is at work in it.

The entry for programs that read a broker's files, such as Spark's connector: they know topics,
partitions and frames, and nothing of the files themselves.

Readers see what the files hold: committed messages in whole frames. The catalogue says which topics
there are; which messages were aborted or belong to open transactions is rebuilt for a partition
from its snapshot and the log behind it, as at a start.
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from pyroaring import BitMap64

from goqueue.base.errors import (
    CorruptFrameError,
    OffsetOutOfRangeError,
    StorageFailedError,
    TopicNotFoundError,
)
from goqueue.base.ids import Offset
from goqueue.base.units import MiB
from goqueue.core.producers import identities
from goqueue.core.record.control import read_control
from goqueue.core.record.cut import cut_frames
from goqueue.core.record.frame import read_header
from goqueue.core.topics import catalog
from goqueue.core.tx.frames import note_messages
from goqueue.core.tx.index import TxIndex
from goqueue.storage.data_format import check_format
from goqueue.storage.journal import Journal
from goqueue.storage.log_reader import Piece
from goqueue.storage.log_view import LogView
from goqueue.storage.queue_blocks import read_transactions
from goqueue.storage.read_only import ReadOnlyDisk
from goqueue.storage.verify import JOURNAL_PATH, LOGS

READ_BYTES: Final = 4 * MiB
TRIES: Final = 20
"""How often a partition is looked at anew whose files change while they are read."""

Result = TypeVar("Result")
_decode: Final = msgspec.msgpack.Decoder(catalog.Event | identities.Event).decode


class DataDirectory:
    """The topics below one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._disk = ReadOnlyDisk(root)

    def __repr__(self) -> str:
        return f"<DataDirectory {self._root}>"

    def topics(self) -> Mapping[str, catalog.Topic]:
        """Return the topics by name, as the catalogue has them now."""
        known = catalog.Catalog()
        if not self._disk.exists(JOURNAL_PATH):
            raise StorageFailedError(f"{self._root} is no data directory of a broker")
        check_format(self._disk)
        try:
            with contextlib.closing(Journal(self._disk, JOURNAL_PATH)) as journal:
                records = journal.records
            for record in records:
                event = _decode(record)
                if isinstance(event, catalog.Event):
                    known.apply(event)
        except (msgspec.MsgspecError, KeyError) as error:
            raise StorageFailedError(f"{JOURNAL_PATH} cannot be understood: {error}") from error
        return {str(name): topic for name, topic in known.topics.items()}

    def partitions(self, name: str) -> list["PartitionView"]:
        """Return the partitions of a topic."""
        topic = self.topics().get(name)
        if topic is None:
            raise TopicNotFoundError(f"topic not found: {ascii(name)[1:-1][:249]}")
        return [self.partition(name, number) for number in range(topic.partitions)]

    def partition(self, name: str, number: int) -> "PartitionView":
        """Return one partition, which is believed to be there."""
        return PartitionView(self._disk, f"{LOGS}/{name}/{number}")


class PartitionView:
    """One partition for read-committed readers."""

    def __init__(self, disk: ReadOnlyDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._log = self._look()
        self._tx = TxIndex()
        self.end_offset = self._steadily(self._settle_end)
        """Where a reader stops: the last message is before it, and no transaction is open there."""

    def __repr__(self) -> str:
        return f"<PartitionView of {self._log!r}>"

    @property
    def start_offset(self) -> Offset:
        """Offset of the oldest message still there."""
        return self._log.start_offset

    def find_time(self, timestamp_us: int) -> Offset | None:
        """Return the first offset at or after a time."""
        return self._steadily(lambda: self._log.find_time(timestamp_us))

    def settle(self) -> None:
        """Wait until everything that was seen is durable: no power cut takes it back."""

        def attempt() -> None:
            self._log.settle()

        self._steadily(attempt)

    def read(self, offset: Offset, *, end_offset: Offset) -> Piece:
        """Return frames from an offset on, without what was aborted."""
        piece = self._steadily(lambda: self._read(offset, end_offset))
        if piece.gaps:
            # A file that changed its name while it was looked up looks like damage, but only once.
            self._log = self._look()
            piece = self._steadily(lambda: self._read(offset, end_offset))
        if not piece.frames or not self._tx.aborted:
            return piece
        first = read_header(piece.frames).offset
        if not self._tx.aborted.range_cardinality(first, piece.next_offset):
            return piece
        keep = BitMap64()
        keep.add_range(offset, piece.next_offset)
        keep -= self._tx.aborted
        return piece._replace(frames=memoryview(b"".join(cut_frames(piece.frames, keep))))

    def _read(self, offset: Offset, end_offset: Offset) -> Piece:
        if offset < self.start_offset:
            raise OffsetOutOfRangeError(
                f"{self._directory}: offset {offset} is before {self.start_offset} (earliest)"
            )
        return self._log.read(offset, end_offset=end_offset, bytes_max=READ_BYTES)

    def _settle_end(self) -> Offset:
        """Find out about transactions, up to the end of the log."""
        log = self._log
        known = range(log.start_offset, log.end_offset + 1)
        begin, self._tx = read_transactions(self._disk, self._directory, known=known)
        offset = begin
        while offset < log.end_offset:
            piece = log.read(offset, end_offset=log.end_offset, bytes_max=READ_BYTES)
            self._note(piece.frames)
            offset = piece.next_offset
        self._tx.trim(log.start_offset)
        return self._tx.stable_offset(log.end_offset)

    def _note(self, frames: memoryview) -> None:
        """Take notice of what checked frames say of transactions."""
        position = 0
        while position < len(frames):
            header = read_header(frames, position)
            frame = frames[position : position + header.size]
            position += header.size
            with contextlib.suppress(CorruptFrameError):
                control = read_control(header, frame)
                if control is not None:
                    self._tx.end(control.number, is_commit=control.is_commit)
                note_messages(self._tx, header, frame)

    def _steadily(self, attempt: Callable[[], Result]) -> Result:
        """Try again with the files that are there now while some go away."""
        for _ in range(TRIES):
            try:
                return attempt()
            except FileNotFoundError:
                self._log = self._look()
        raise StorageFailedError(f"the files of {self._directory} change faster than they are read")

    def _look(self) -> LogView:
        for _ in range(TRIES):
            try:
                return LogView(self._disk, self._directory)
            except FileNotFoundError:
                if not self._disk.exists(self._directory):
                    raise TopicNotFoundError(f"{self._directory} is not there (any more)") from None
        raise StorageFailedError(f"{self._directory} holds no segment that stays")
