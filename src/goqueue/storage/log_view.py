"""The log of a partition as its files are now, for readers.

A broker may go on appending, rolling, deleting and compacting meanwhile. Files that are open stay
what they were; one that is gone when it is opened raises FileNotFoundError, and the view is made
anew. Nothing is mended: half a write at the end is left out, damage is passed over.
"""

from goqueue.base.ids import Offset
from goqueue.core.log.scan import find_frame, has_lost_sector
from goqueue.storage.log_reader import LogReader, Piece
from goqueue.storage.partition_log import PartitionLog
from goqueue.storage.read_only import ReadOnlyDisk, ReadOnlyFile
from goqueue.storage.segment import Scan, Segment
from goqueue.storage.swap import bases_in


class _Held(Segment):
    """A segment whose size is that of the file at hand, whatever has its name by now."""

    @property
    def size(self) -> int:
        """Bytes in the log file when it was opened."""
        return self.file.size()


class LogView(PartitionLog):
    """The segments there are, and where the last of them ends."""

    def __init__(self, disk: ReadOnlyDisk, directory: str) -> None:
        super().__init__(disk, directory)
        self._reader = LogReader(self)

    def __repr__(self) -> str:
        return f"<LogView {self.directory} {self.start_offset}..{self.end_offset}>"

    def read(self, offset: Offset, *, end_offset: Offset, bytes_max: int) -> Piece:
        """Return frames from an offset on."""
        location = self._reader.locate(offset, bytes_max=bytes_max)
        assert isinstance(location.file, ReadOnlyFile), "so it was opened"
        chunk = location.file.load(location.position, location.size)
        return self._reader.pick(
            location, chunk, offset, end_offset=end_offset, bytes_max=bytes_max
        )

    def find_time(self, timestamp_us: int) -> Offset | None:
        """Return the first offset at or after a time."""
        found = self._reader.find_time(timestamp_us)
        return found if found is not None and found < self.end_offset else None

    def settle(self) -> None:
        """Wait until everything that was seen is durable."""
        file = self._active.file
        assert isinstance(file, ReadOnlyFile), "so it was opened"
        file.settle()

    def _open(self) -> None:
        bases = bases_in(self._disk, self._directory)
        if not bases:
            raise FileNotFoundError(f"{self._directory} holds no segment")
        self._segments = [_Held(self._disk, self._directory, base) for base in bases]
        self._recover()

    def _recover(self) -> None:
        """Find the end of the last segment."""
        active = self._active
        scan = active.recover()
        if scan.fault is not None and not _is_torn(active, scan):
            offset, position = active.tail()
            for _, span in active.scan_past_damage(offset, position):
                offset = span.end_offset
            last = active.index.offsets.last()
            active.next_offset = max(offset, Offset(last[0] if last else 0))


def _is_torn(active: Segment, scan: Scan) -> bool:
    """Tell half a write, which was never acknowledged, from damage."""
    if scan.position < active.index.indexed_end:
        return False
    tail = active.file.read(scan.position, active.size - scan.position)
    following = find_frame(tail, offset_min=active.next_offset)
    return following is None or has_lost_sector(
        tail, start=0, end=following.start, origin=scan.position
    )
