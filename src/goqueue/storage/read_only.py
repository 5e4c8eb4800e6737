"""A data directory that is looked at and never changed, for checks of what lies in it."""

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Never

from goqueue.base.errors import DataDirLockedError, StorageFailedError
from goqueue.base.ids import Position
from goqueue.storage.disk import Buffer
from goqueue.storage.local import LOCK_NAME, LocalDisk, LocalFile

_NOTHING_TO_SYNC: Final = frozenset({errno.EROFS, errno.EINVAL, errno.EBADF})


class ReadOnlyError(StorageFailedError):
    """A change was asked of a disk that only reads."""


class ReadOnlyFile(LocalFile):
    """One file opened for reading only, so that the system itself refuses every write."""

    __slots__ = ()

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Refuse."""
        _refuse(f"append {len(buffers)} buffers to {self.path}")

    def truncate(self, size: int) -> None:
        """Look no further than ``size`` through this handle; the file stays as it is."""
        if not 0 <= size <= self._size:
            raise ValueError(f"cannot cut {self.path} of {self._size} bytes to {size}")
        self._size = size

    def begin_sync(self) -> None:
        """Do nothing: there is nothing to make durable."""

    def sync(self) -> None:
        """Do nothing: there is nothing to make durable."""

    def load(self, position: Position, size_max: int) -> memoryview:
        """Return what ``read`` would, in memory that is used again once it is released."""
        view = self._disk.buffers.take(max(min(size_max, self._size - position), 0))
        done = 0
        while done < len(view):
            count = self._read_into(view[done:], position + done)
            if count == 0:
                break
            done += count
        return view[:done]

    def _read_into(self, view: memoryview, position: int) -> int:
        try:
            return os.preadv(self._descriptor, [view], position)
        except OSError as error:
            raise self._failure("read", error) from error

    def settle(self) -> None:
        """Wait until what another process has written is durable, where the file system can say."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            if error.errno not in _NOTHING_TO_SYNC:
                raise self._failure("sync", error) from error


class ReadOnlyDisk(LocalDisk):
    """The tree below ``root``, for reading. ``lock`` keeps a broker from starting meanwhile."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._shared_lock = -1

    def open(self, path: str, *, create: bool = False) -> ReadOnlyFile:
        """Open for reading; a missing file raises FileNotFoundError, whatever ``create`` says."""
        del create
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return ReadOnlyFile(self, path, os.open(self._entry(path), flags))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageFailedError(f"cannot open {path}: {error.strerror}") from error

    def make_directories(self, paths: Sequence[str]) -> None:
        """Accept directories that are there, refuse to make one."""
        for path in paths:
            if not Path(self._full(path)).is_dir():
                _refuse(f"make {path}")

    def sync_directory(self, path: str) -> None:
        """Do nothing: there is nothing to make durable."""

    def rename(self, source: str, target: str) -> None:
        """Refuse."""
        _refuse(f"rename {source} to {target}")

    def remove(self, path: str) -> None:
        """Refuse."""
        _refuse(f"remove {path}")

    def remove_tree(self, path: str) -> None:
        """Refuse."""
        _refuse(f"remove {path}")

    def lock(self) -> None:
        """Share the data directory with other readers, or raise DataDirLockedError."""
        try:
            descriptor = os.open(self._full(LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # No broker has ever run here, or the directory is a copy without its lock.
            return
        except OSError as error:
            raise StorageFailedError(f"cannot open {LOCK_NAME}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DataDirLockedError(f"the data directory is in use by process {holder}") from error
        self._shared_lock = descriptor

    def unlock(self) -> None:
        """Let brokers start again."""
        descriptor, self._shared_lock = self._shared_lock, -1
        if descriptor >= 0:
            os.close(descriptor)


def _refuse(deed: str) -> Never:
    raise ReadOnlyError(f"this is a check that changes nothing; it was asked to {deed}")
