"""A small file of records that must not be lost: the state of a decider as its events.

     0      4        8
    +------+--------+---------
    | size | crc32c | record …        again and again, big-endian
    +------+--------+---------

A torn last record was never acknowledged and is cut. Any other bad record is damage: the journal
refuses to open, because state without it would be wrong in silence. Who can do without what was
lost opens it past the damage, and rewrites it before anything is appended.
"""

import contextlib
import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from goqueue.base.errors import GoQueueError, StorageFailedError
from goqueue.base.ids import Position
from goqueue.base.limits import JOURNAL_RECORD_BYTES_MAX
from goqueue.core.log.torn import has_lost_part
from goqueue.storage.disk import Disk, File, write_atomically

_HEAD: Final = struct.Struct(">II")


class Journal:
    """Appends records durably and reads them back in order."""

    def __init__(self, disk: Disk, path: str, *, past_damage: bool = False) -> None:
        self._disk = disk
        self._path = path
        self._failure: StorageFailedError | None = None
        self._is_in_doubt = False
        """Whether a file that was to replace this one may have done so."""
        directory = path.rpartition("/")[0]
        disk.make_directory(directory)
        self._file: File = disk.open(path, create=True)
        # Also where it exists: a process killed right after it made or replaced the file left the
        # name unsynced.
        disk.sync_directory(directory)
        raw = self._file.read(Position(0), self._file.size())
        self.records, end = _split(raw)
        is_damaged = _is_damaged(raw, end)
        if is_damaged and not past_damage:
            raise StorageFailedError(
                f"{path}: the record at byte {end} of {len(raw)} is damaged, and state without it"
                " would be wrong; restore the file from a backup"
            )
        self.damaged = raw[end:] if is_damaged else b""
        """What followed the last good record and was acknowledged once; it is still in the file."""
        self.torn = b"" if is_damaged else raw[end:]
        """What followed the last good record and was cut off."""
        if self.torn:
            self._file.truncate(end)
            self._file.sync()

    def __repr__(self) -> str:
        return f"<Journal {self._path} of {self.size_bytes} bytes>"

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self._file.size()

    def append(self, records: Iterable[bytes]) -> None:
        """Write records and wait until they are durable, or raise with nothing written.

        After a sync that failed the journal takes no more: what the disk holds is not known.
        """
        assert not self.damaged, "rewritten first"
        self._check_writable()
        size = self._file.size()
        self._file.append([_pack(record) for record in records])
        try:
            self._file.sync()
        except StorageFailedError as error:
            self._failure = error
            with contextlib.suppress(StorageFailedError):
                self._file.truncate(size)
            raise

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace everything by fewer records that mean the same."""
        self._check_writable()
        try:
            write_atomically(self._disk, self._path, b"".join(_pack(record) for record in records))
        except StorageFailedError as error:
            # Either file may be the one that a restart finds, so neither takes more records.
            self._failure = error
            raise
        except GoQueueError:
            self._is_in_doubt = True
            raise
        self._open_again()

    def _open_again(self) -> None:
        """Go on with the file that has the name now."""
        self._is_in_doubt = True
        file = self._disk.open(self._path)
        self._file.close()
        self._file = file
        self._is_in_doubt = False
        self.damaged = b""

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise StorageFailedError(self._failure.message) from self._failure
        if self._is_in_doubt:
            self._disk.sync_directory(self._path.rpartition("/")[0])
            self._open_again()

    def close(self) -> None:
        """Release the file."""
        self._file.close()


def _pack(record: bytes) -> bytes:
    assert len(record) <= JOURNAL_RECORD_BYTES_MAX, "journal records are small"
    return _HEAD.pack(len(record), crc32c(record)) + record


def _split(raw: bytes) -> tuple[list[bytes], int]:
    records: list[bytes] = []
    position = 0
    while position + _HEAD.size <= len(raw):
        record = _record_at(raw, position)
        if record is None:
            break
        records.append(record)
        position += _HEAD.size + len(record)
    return records, position


def _record_at(raw: bytes, position: int) -> bytes | None:
    size, crc = _HEAD.unpack_from(raw, position)
    start = position + _HEAD.size
    record = raw[start : start + size]
    is_whole = 0 < size <= JOURNAL_RECORD_BYTES_MAX and len(record) == size
    return record if is_whole and crc32c(record) == crc else None


def _is_damaged(raw: bytes, position: int) -> bool:
    """Tell damage from a torn end: that has zeros or ends early, and no good record behind it."""
    if position + _HEAD.size > len(raw):
        return False
    rest = range(position + 1, len(raw) - _HEAD.size)
    return not _is_torn(raw[position:], position) or any(_record_at(raw, at) for at in rest)


def _is_torn(tail: bytes, position: int) -> bool:
    size, crc = _HEAD.unpack_from(tail)
    left = len(tail) - _HEAD.size
    if not left < size <= JOURNAL_RECORD_BYTES_MAX:
        return has_lost_part(tail, position)
    # A size with one wrong bit makes a whole record look like half of one.
    is_whole = (size ^ left).bit_count() == 1 and crc32c(tail[_HEAD.size :]) == crc
    return not is_whole
