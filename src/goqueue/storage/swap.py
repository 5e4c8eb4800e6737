"""Putting a compacted segment in the place of those it was made from, so that a crash is harmless.

The compacted segment lies beside the log as ``BASE.cleaned.log`` with its indexes, synced. Then a
note, ``compaction.swap``, names it and the segments it replaces. From that moment on the swap has
happened: what opens the log finds the note and does what is left of it.
"""

import contextlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from crc32c import crc32c

from goqueue.base.errors import GoQueueError, StorageFailedError
from goqueue.base.ids import Offset, Position
from goqueue.storage.disk import Disk, write_atomically
from goqueue.storage.segment_index import INDEX_SUFFIX, TIME_INDEX_SUFFIX

CLEANED: Final = ".cleaned"
SWAP_NAME: Final = "compaction.swap"
CHECKPOINT_NAME: Final = "compaction.checkpoint"
LOG_SUFFIX: Final = ".log"
SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)

_CRC: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A compacted segment, and the first offsets of those it replaces, itself included."""

    base_offset: Offset
    replaced: tuple[Offset, ...]

    def encode(self) -> bytes:
        """Return the note."""
        return _sealed(msgspec.msgpack.encode([self.base_offset, list(self.replaced)]))

    def begin(self, disk: Disk, directory: str) -> None:
        """Write the note and give the log its name, or raise with nothing changed.

        Waits for the disk.
        """
        path = f"{directory}/{SWAP_NAME}"
        write_atomically(disk, path, self.encode())
        try:
            self.put_log(disk, directory)
        except (GoQueueError, OSError):
            with contextlib.suppress(GoQueueError, OSError):
                disk.remove(path)
            raise

    def put_log(self, disk: Disk, directory: str) -> None:
        """Give the compacted log its name."""
        stem = stem_of(directory, self.base_offset)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            # An index of the old log must never be taken for one of the new.
            if disk.exists(stem + CLEANED + suffix):
                disk.remove(stem + suffix)
        if disk.exists(stem + CLEANED + LOG_SUFFIX):
            disk.rename(stem + CLEANED + LOG_SUFFIX, stem + LOG_SUFFIX)

    def put_rest(self, disk: Disk, directory: str) -> None:
        """Give the indexes their names and remove what is replaced."""
        stem = stem_of(directory, self.base_offset)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if disk.exists(stem + CLEANED + suffix):
                disk.rename(stem + CLEANED + suffix, stem + suffix)
        for base in self.replaced:
            if base != self.base_offset:
                for suffix in SUFFIXES:
                    disk.remove(stem_of(directory, base) + suffix)


def stem_of(directory: str, base_offset: Offset) -> str:
    """Return what the names of a segment's files begin with."""
    return f"{directory}/{base_offset:020d}"


def bases_in(disk: Disk, directory: str) -> list[Offset]:
    """Return the first offsets of the segments in a directory."""
    return bases_of(disk.list_directory(directory))


def bases_of(names: Sequence[str]) -> list[Offset]:
    """Return the first offsets of the segments that have a log among these names."""
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    return [Offset(int(stem)) for stem in stems if stem.isdecimal()]


def read_swap(disk: Disk, directory: str) -> Swap | None:
    """Return the swap that is noted in a directory."""
    body = _read(disk, f"{directory}/{SWAP_NAME}")
    if body is None:
        return None
    base, replaced = msgspec.msgpack.decode(body, type=tuple[int, list[int]])
    return Swap(base_offset=Offset(base), replaced=tuple(map(Offset, replaced)))


def mend(disk: Disk, directory: str) -> Sequence[str]:
    """Finish the swap a crash has interrupted and remove what was not yet part of one.

    Return the names that are in the directory now.
    """
    names = disk.list_directory(directory)
    if SWAP_NAME in names:
        swap = read_swap(disk, directory)
        if swap is None:
            raise StorageFailedError(f"{directory}/{SWAP_NAME} is damaged")
        swap.put_log(disk, directory)
        swap.put_rest(disk, directory)
        forget_swap(disk, directory)
        names = disk.list_directory(directory)
    return _without_cleaned(disk, directory, names)


def forget_swap(disk: Disk, directory: str) -> None:
    """Remove the note once everything is in its place, durably. Any thread."""
    disk.sync_directory(directory)
    disk.remove(f"{directory}/{SWAP_NAME}")
    disk.sync_directory(directory)


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Remove the files of a compaction that did not come to its swap.

    As long as there is a note, they are what it speaks of.
    """
    names = disk.list_directory(directory)
    if SWAP_NAME not in names:
        _without_cleaned(disk, directory, names)


def _without_cleaned(disk: Disk, directory: str, names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if CLEANED in name:
            disk.remove(f"{directory}/{name}")
    return [name for name in names if CLEANED not in name]


# How far the log is compacted.


def write_checkpoint(disk: Disk, directory: str, offset: Offset) -> None:
    """Remember up to where the log is compacted. Any thread."""
    write_atomically(disk, f"{directory}/{CHECKPOINT_NAME}", _sealed(_OFFSET.pack(offset)))


def read_checkpoint(disk: Disk, directory: str) -> Offset:
    """Return up to where the log is compacted; one that cannot be read counts as not at all."""
    body = None
    with contextlib.suppress(StorageFailedError):
        body = _read(disk, f"{directory}/{CHECKPOINT_NAME}")
    return Offset(_OFFSET.unpack(body)[0]) if body is not None else Offset(0)


def is_good(disk: Disk, path: str) -> bool:
    """Return True if a file of these is there and undamaged."""
    return _read(disk, path) is not None


def _sealed(body: bytes) -> bytes:
    return _CRC.pack(crc32c(body)) + body


def _read(disk: Disk, path: str) -> bytes | None:
    """Return what a small file holds; None if it is missing or damaged."""
    try:
        with contextlib.closing(disk.open(path)) as file:
            raw = file.read(Position(0), file.size())
    except FileNotFoundError:
        return None
    body = raw[_CRC.size :]
    if len(raw) <= _CRC.size or _CRC.unpack_from(raw)[0] != crc32c(body):
        return None
    return body
