"""The disk as the broker sees it: the only way to bytes that outlive the process.

Paths are relative to the data directory and use ``/``. What is written is not durable before
``File.sync``; a created, renamed or removed name is not durable before ``sync_directory`` of its
parent. Two disks keep this contract: ``LocalDisk`` and the crashing ``goqueue.testing.MemoryDisk``.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from goqueue.base.ids import Position

Buffer = bytes | bytearray | memoryview


class Handle(NamedTuple):
    """By what another process of this machine finds an open file, and knows it again."""

    descriptor: int
    device: int
    inode: int


class File(Protocol):
    """One open file. Reading and writing never move a shared cursor."""

    @property
    def path(self) -> str:
        """Name relative to the data directory."""
        ...

    @property
    def handle(self) -> Handle | None:
        """How others can open the file; None where it is not a file of this machine."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at the end, or raise with the file as long as it was before.

        A full disk raises DiskFullError, what else may pass (no memory, no more files)
        OverloadedError, any other failure StorageFailedError. So do all calls but syncs.
        """
        ...

    def read(self, position: Position, size_max: int) -> bytes:
        """Return up to ``size_max`` bytes; fewer only at the end of the file."""
        ...

    def read_cached(self, position: Position, size_max: int) -> bytes | memoryview | None:
        """Return what ``read`` would, or None where that would have to wait for the device."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file; the cut is durable after ``sync``."""
        ...

    def begin_sync(self) -> None:
        """Have the system begin to write what ``sync`` waits for; promises nothing."""
        ...

    def sync(self) -> None:
        """Make the bytes and the length durable, or raise StorageFailedError."""
        ...

    def close(self) -> None:
        """Release the file. Closing twice is fine. Does not sync."""
        ...


class Disk(Protocol):
    """A directory tree."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending; FileNotFoundError unless it exists or is created."""
        ...

    def exists(self, path: str) -> bool:
        """Return True if a file or directory is there."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; a missing directory is empty."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents where missing, durably."""
        ...

    def make_directories(self, paths: Sequence[str]) -> None:
        """Create directories and their parents where missing, durably; each parent synced once."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` atomically."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        ...

    def free_bytes(self) -> int:
        """Return how many bytes may still be written."""
        ...

    def lock(self) -> None:
        """Take the data directory for this process or raise DataDirLockedError."""
        ...

    def unlock(self) -> None:
        """Give the data directory back."""
        ...


def write_atomically(disk: Disk, path: str, content: Buffer, *, mark: str = "") -> None:
    """Replace a small file so that a crash leaves the old content or the new, never a mix."""
    temporary = f"{path}{mark}.tmp"
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append([content])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.rpartition("/")[0])
