"""The disk of this machine: a data directory on a real file system.

A file has one handle. The handle keeps the length in memory, so an append is one system call, and
reads end at that length, so bytes of an append that failed are never seen.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from goqueue.base.buffers import BufferPool
from goqueue.base.errors import (
    DataDirLockedError,
    DiskFullError,
    GoQueueError,
    OverloadedError,
    StorageFailedError,
)
from goqueue.base.fast_path import fast_path
from goqueue.base.ids import Position
from goqueue.base.units import MiB
from goqueue.storage.disk import Buffer, Handle
from goqueue.storage.paths import by_parent, entry_parts_of, parts_of
from goqueue.storage.writeback import begin_writing

LOCK_NAME: Final = "goqueue.lock"
"""Holds the pid of the process that owns the data directory; not listed with the other files."""

DIRECTORY_MODE: Final = 0o750
FILE_MODE: Final = 0o600

_BUFFERS_MAX: Final = os.sysconf("SC_IOV_MAX")
_BUFFERS_KEPT: Final = 4
_BUFFER_BYTES_KEPT: Final = 5 * MiB
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS})
"""What the system lacks for a moment; nothing is lost by it. Not so where a sync says it."""
_NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class LocalFile:
    """One open file of a LocalDisk. One task appends and truncates; reads and sync may be threaded.

    Nothing may close the file while a thread still reads or syncs it: the number of a closed
    descriptor is given to the next file that is opened.
    """

    __slots__ = ("_descriptor", "_disk", "_identity", "_path", "_size")

    def __init__(self, disk: "LocalDisk", path: str, descriptor: int) -> None:
        self._disk = disk
        self._path = path
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self._size = status.st_size
        self._identity = status.st_dev, status.st_ino

    def __repr__(self) -> str:
        state = "closed" if self._descriptor < 0 else f"{self._size} bytes"
        return f"<LocalFile {self._path}: {state}>"

    @property
    def path(self) -> str:
        """Name relative to the data directory when the file was opened."""
        return self._path

    @property
    def handle(self) -> Handle | None:
        """How others can open the file, as long as it is open here."""
        return Handle(self._descriptor, *self._identity) if self._descriptor >= 0 else None

    def size(self) -> int:
        """Return the length in bytes."""
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at the end, or raise with the file as long as it was before."""
        written, wanted = 0, 0
        for buffer in buffers:
            wanted += len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes
        try:
            if len(buffers) <= _BUFFERS_MAX:
                written = os.pwritev(self._descriptor, buffers, self._size)
            if written < wanted:
                self._append_rest(buffers, written)
        except OSError as error:
            raise self._roll_back(error) from error
        self._size += wanted

    def read(self, position: Position, size_max: int) -> bytes:
        """Return up to ``size_max`` bytes; fewer only at the end of the file."""
        wanted = min(size_max, self._size - position)
        if wanted <= 0:
            self._check_open()
            return b""
        try:
            content = os.pread(self._descriptor, wanted, position)
            if len(content) == wanted:
                return content
            return self._read_rest(content, position, wanted)
        except OSError as error:
            self._check_open()
            raise _translate("read", self._path, error) from error

    @fast_path(of="LocalFile.read", bench="read", test="tests/runtime/test_fast_reads.py")
    def read_cached(self, position: Position, size_max: int) -> bytes | memoryview | None:
        """Return what ``read`` would, or None where that would have to wait for the device."""
        if not self._disk.reads_cached:
            return None
        wanted = min(size_max, self._size - position)
        if wanted <= 0:
            self._check_open()
            return b""
        view = self._disk.buffers.take(wanted)
        try:
            count = os.preadv(self._descriptor, [view], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                self._check_open()
                raise _translate("read", self._path, error) from error
            self._disk.reads_cached = False
            return None
        return view if count == wanted else None

    def truncate(self, size: int) -> None:
        """Cut the file; the cut is durable after ``sync``."""
        if not 0 <= size <= self._size:
            raise ValueError(f"cannot cut {self._path} of {self._size} bytes to {size}")
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise self._failure("cut", error) from error
        self._size = size

    def begin_sync(self) -> None:
        """Have the system begin to write what ``sync`` waits for; promises nothing."""
        if self._descriptor >= 0:
            begin_writing(self._descriptor)

    def sync(self) -> None:
        """Make the bytes and the length durable, or raise StorageFailedError."""
        self._check_open()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._failure("sync", error) from error

    def close(self) -> None:
        """Release the file. Closing twice is fine. Does not sync."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # An error here speaks of bytes nobody synced, so nobody was promised them.
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        """Release the file once it has no readers."""
        self.close()

    def _append_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        rest = memoryview(b"".join(buffers))[written:]
        position = self._size + written
        while rest:
            count = os.pwrite(self._descriptor, rest, position)
            if count == 0:
                raise OSError(errno.EIO, "the device takes no bytes")
            rest = rest[count:]
            position += count

    def _read_rest(self, content: bytes, position: int, wanted: int) -> bytes:
        pieces = [content]
        done = len(content)
        while done < wanted and pieces[-1]:
            pieces.append(os.pread(self._descriptor, wanted - done, position + done))
            done += len(pieces[-1])
        return b"".join(pieces)

    def _roll_back(self, error: OSError) -> Exception:
        self._check_open()
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError as failure:
            return self._failure(f"append ({error.strerror}) and then cut back", failure)
        return _translate("append to", self._path, error)

    def _failure(self, verb: str, error: OSError) -> StorageFailedError:
        self._check_open()
        return StorageFailedError(f"cannot {verb} {self._path}: {error.strerror}")

    def _check_open(self) -> None:
        if self._descriptor < 0:
            raise ValueError(f"{self._path} is closed")


class LocalDisk:
    """The tree below ``root``, which ``lock`` and ``make_directory`` create where it is missing.

    Take the lock before anything else: until then another process may be writing the same files.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._root_path = str(root)
        self._lock_descriptor = -1
        self.reads_cached = hasattr(os, "RWF_NOWAIT") and hasattr(os, "preadv")
        """Whether the file system can say what it holds in memory; found out by trying."""
        self.buffers = BufferPool(kept_max=_BUFFERS_KEPT, kept_bytes_max=_BUFFER_BYTES_KEPT)

    def __repr__(self) -> str:
        return f"<LocalDisk {self._root}: {'locked' if self._lock_descriptor >= 0 else 'unlocked'}>"

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        """Open for reading and appending; FileNotFoundError unless it exists or is created."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        with _translated("open", path):
            return LocalFile(self, path, os.open(self._entry(path), flags, FILE_MODE))

    def exists(self, path: str) -> bool:
        """Return True if a file or directory is there."""
        with _translated("look up", path):
            return Path(self._full(path)).exists()

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; a missing directory is empty."""
        with _translated("list", path):
            try:
                names = sorted(os.listdir(self._full(path)))  # noqa: PTH208 - a third of the time
            except FileNotFoundError:
                return []
        return names if path else [name for name in names if name != LOCK_NAME]

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents where missing, durably."""
        self.make_directories([path])

    def make_directories(self, paths: Sequence[str]) -> None:
        """Create directories and their parents where missing, durably; each parent synced once."""
        with _translated("make directory", "."):
            _make_durably(self._root)
        for parent, children in by_parent(paths).items():
            for child in children:
                with _translated("make directory", child):
                    _make_one(self._full(child))
            # Also where they exist: a process killed right here left them unsynced.
            with _translated("make directories in", parent or "."):
                _sync_directory(self._full(parent))

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        with _translated("open", path or "."):
            descriptor = _open_directory(self._full(path))
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise StorageFailedError(f"cannot sync {path or '.'}: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` atomically."""
        with _translated("rename", source):
            os.replace(self._entry(source), self._entry(target))  # noqa: PTH105 - see _full

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        with _translated("remove", path), contextlib.suppress(FileNotFoundError):
            os.unlink(self._entry(path))  # noqa: PTH108 - see _full

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        directory = self._entry(path)
        with _translated("remove", path), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)

    def free_bytes(self) -> int:
        """Return how many bytes may still be written."""
        with _translated("ask for room on", "."):
            status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def lock(self) -> None:
        """Take the data directory for this process or raise DataDirLockedError."""
        if self._lock_descriptor >= 0:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with _translated("open", LOCK_NAME):
            _make_durably(self._root)
            descriptor = os.open(self._root / LOCK_NAME, flags, FILE_MODE)
        try:
            with _translated("lock", LOCK_NAME):
                self._take(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._lock_descriptor = descriptor

    def unlock(self) -> None:
        """Give the data directory back."""
        descriptor, self._lock_descriptor = self._lock_descriptor, -1
        if descriptor >= 0:
            # The file stays: removing it would let two processes lock two files of one name.
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise DataDirLockedError(
                f"data directory {self._root} is in use by process {holder}"
                f" (it holds {self._root / LOCK_NAME})"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)

    def _full(self, path: str) -> str:
        """Return a path of the system. Not a Path: making one costs more than most calls."""
        return "/".join((self._root_path, *parts_of(path)))

    def _entry(self, path: str) -> str:
        return "/".join((self._root_path, *entry_parts_of(path)))


@contextlib.contextmanager
def _translated(verb: str, path: str) -> Iterator[None]:
    """Turn what the system says into our errors; a missing file stays FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _translate(verb, path, error) from error


def _translate(verb: str, path: str, error: OSError) -> GoQueueError:
    """Return our error for what the system says: may it pass, and by what."""
    if error.errno in _FULL:
        return DiskFullError(f"no room on the disk to {verb} {path}")
    if error.errno in _PASSING:
        return OverloadedError(f"cannot {verb} {path} now: {error.strerror}")
    return StorageFailedError(f"cannot {verb} {path}: {error.strerror}")


def _open_directory(directory: str | Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _make_one(directory: str) -> None:
    try:
        os.mkdir(directory, DIRECTORY_MODE)  # noqa: PTH102 - see LocalDisk._full
    except FileExistsError:
        if not os.path.isdir(directory):  # noqa: PTH112 - see LocalDisk._full
            raise


def _sync_directory(directory: str | Path) -> None:
    descriptor = _open_directory(directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_durably(directory: Path) -> None:
    if directory.is_dir():
        return
    _make_durably(directory.parent)
    directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    _sync_directory(directory.parent)
