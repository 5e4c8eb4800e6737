"""A small file of records that must not be lost: the state of a decider as its events.

     0      4        8
    +------+--------+---------
    | size | crc32c | record …        again and again, big-endian
    +------+--------+---------

A torn last record was never acknowledged and is cut. A bad record before good ones is damage: the
journal refuses to open, because state without it would be wrong in silence.
"""

import contextlib
import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from goqueue.base.errors import StorageFailedError
from goqueue.base.ids import Position
from goqueue.base.limits import JOURNAL_RECORD_BYTES_MAX
from goqueue.storage.disk import Disk, File, write_atomically

_HEAD: Final = struct.Struct(">II")


class Journal:
    """Appends records durably and reads them back in order."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._failure: StorageFailedError | None = None
        directory = path.rpartition("/")[0]
        disk.make_directory(directory)
        self._file: File = disk.open(path, create=True)
        # Also where it exists: a process killed right after it made or replaced the file left the
        # name unsynced.
        disk.sync_directory(directory)
        raw = self._file.read(Position(0), self._file.size())
        self.records, end = _split(raw, path)
        self.torn = raw[end:]
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
        self._file.close()
        self._file = self._disk.open(self._path)

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise StorageFailedError(self._failure.message) from self._failure

    def close(self) -> None:
        """Release the file."""
        self._file.close()


def _pack(record: bytes) -> bytes:
    assert len(record) <= JOURNAL_RECORD_BYTES_MAX, "journal records are small"
    return _HEAD.pack(len(record), crc32c(record)) + record


def _split(raw: bytes, path: str) -> tuple[list[bytes], int]:
    records: list[bytes] = []
    position = 0
    while position + _HEAD.size <= len(raw):
        record = _record_at(raw, position)
        if record is None:
            _refuse_damage(raw, position, path)
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


def _refuse_damage(raw: bytes, position: int, path: str) -> None:
    """Tell a torn end from damage: behind a torn record there is never a good one."""
    for start in range(position + 1, len(raw) - _HEAD.size):
        if _record_at(raw, start) is not None:
            raise StorageFailedError(
                f"{path}: the record at byte {position} is damaged and good ones follow;"
                " restore the file from a backup"
            )
