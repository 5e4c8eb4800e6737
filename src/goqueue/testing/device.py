"""How the device below a memory disk misbehaves: full, failing, slow or cold."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from goqueue.base.errors import DiskFullError, StorageFailedError
from goqueue.base.units import GiB

EVERYTHING: Final = "*"
"""The glob that every path matches; ``*`` also matches a slash."""

ROOM_BYTES: Final = 1024 * GiB
"""Room on a device that was not filled up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncFailure:
    """A sync that will fail."""

    path_glob: str
    error: OSError
    forever: bool
    drops_pages: bool

    def as_raised(self, path: str) -> StorageFailedError:
        """Return the error that whoever syncs this path meets."""
        return StorageFailedError(f"cannot sync {path or '.'}: {self.error.strerror}")


class Device:
    """The faults that outlive a process and a power cut."""

    def __init__(self) -> None:
        self._sync_failures: list[SyncFailure] = []
        self._sync_hook: Callable[[str], None] | None = None
        self._cold_globs: set[str] = set()
        self._full_glob = EVERYTHING
        self._bytes_free: int | None = None

    def fill_up(self, bytes_free: int, *, path_glob: str) -> None:
        """Leave only so much room for files that match."""
        self._bytes_free = bytes_free
        self._full_glob = path_glob

    def make_room(self) -> None:
        """Take back ``fill_up``."""
        self._bytes_free = None

    def free_bytes(self) -> int:
        """Return the room that is left."""
        return ROOM_BYTES if self._bytes_free is None else self._bytes_free

    def take(self, path: str, size: int) -> None:
        """Use room or raise DiskFullError; a negative size gives room back."""
        if self._bytes_free is None or not fnmatchcase(path, self._full_glob):
            return
        if size > self._bytes_free:
            raise DiskFullError(f"no room on the disk to append to {path}")
        self._bytes_free -= size

    def fail_sync(
        self, path_glob: str, error: OSError | None, *, forever: bool, drops_pages: bool
    ) -> None:
        """Make a sync of a path that matches fail."""
        self._sync_failures.append(
            SyncFailure(
                path_glob=path_glob,
                error=error or OSError(errno.EIO, "Input/output error"),
                forever=forever,
                drops_pages=drops_pages,
            )
        )

    def next_sync_failure(self, path: str) -> SyncFailure | None:
        """Return how the sync of a path fails, if it does, and count that failure as used."""
        for failure in self._sync_failures:
            if fnmatchcase(path, failure.path_glob):
                if not failure.forever:
                    self._sync_failures.remove(failure)
                return failure
        return None

    def delay_sync(self, hook: Callable[[str], None] | None) -> None:
        """Call ``hook`` with the path inside every sync."""
        self._sync_hook = hook

    def wait_in_sync(self, path: str) -> None:
        """Take as long as the test wants the sync to take."""
        if self._sync_hook is not None:
            self._sync_hook(path)

    def evict(self, path_glob: str) -> None:
        """Drop files from the cache until ``heal``."""
        self._cold_globs.add(path_glob)

    def is_cold(self, path: str) -> bool:
        """Return True if reading has to wait for the device."""
        return any(fnmatchcase(path, path_glob) for path_glob in self._cold_globs)

    def heal(self) -> None:
        """Take back every fault."""
        self.make_room()
        self.delay_sync(None)
        self._sync_failures.clear()
        self._cold_globs.clear()
