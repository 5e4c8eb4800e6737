"""A small file of records that must not be lost: the state of a decider as its events.

     0      4        8
    +------+--------+---------
    | size | crc32c | record …        again and again, big-endian
    +------+--------+---------

A torn last record was never acknowledged and is cut. A bad record before good ones is damage: the
journal refuses to open, because state without it would be wrong in silence.
"""

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
        disk.make_directory(path.rpartition("/")[0])
        is_new = not disk.exists(path)
        self._file: File = disk.open(path, create=True)
        if is_new:
            disk.sync_directory(path.rpartition("/")[0])
        raw = self._file.read(Position(0), self._file.size())
        self.records, end = _split(raw, path)
        if end < len(raw):
            self._file.truncate(end)
            self._file.sync()

    def __repr__(self) -> str:
        return f"<Journal {self._path} of {self.size_bytes} bytes>"

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self._file.size()

    def append(self, records: Iterable[bytes]) -> None:
        """Write records and wait until they are durable."""
        self._file.append([_pack(record) for record in records])
        self._file.sync()

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace everything by fewer records that mean the same."""
        write_atomically(self._disk, self._path, b"".join(_pack(record) for record in records))
        self._file.close()
        self._file = self._disk.open(self._path)

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
