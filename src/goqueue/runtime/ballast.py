"""Room kept for consumers: a file that is given up when the disk is full.

Publishers stop when there is no room; those who work through what is there must not, or nothing
would ever be deleted. From the moment the ballast is given up until there is room for it again,
only the state of groups is written.
"""

import threading
from typing import Final

from goqueue.base.errors import DiskFullError, OverloadedError, StorageFailedError
from goqueue.base.units import SECOND_MS, MiB
from goqueue.observability.events import LogEvent
from goqueue.observability.logging import get_logger
from goqueue.runtime.clock import Clock
from goqueue.storage.disk import Disk, write_atomically

BALLAST_PATH: Final = "meta/ballast"
BALLAST_BYTES: Final = 8 * MiB
CHECK_EVERY_MS: Final = SECOND_MS

log = get_logger("goqueue.disk")


class Ballast:
    """Holds room on the disk, and tells publishers when it had to be given up."""

    def __init__(self, disk: Disk, clock: Clock, *, size_bytes: int = BALLAST_BYTES) -> None:
        self._disk = disk
        self._clock = clock
        self._size_bytes = size_bytes
        self._is_spent = False
        self._checked_ms = 0
        # Guards the file while it is written: the loop and a thread may both want it.
        self._taking = threading.Lock()

    def __repr__(self) -> str:
        return f"<Ballast of {self._size_bytes} bytes{', given up' if self._is_spent else ''}>"

    def take(self) -> None:
        """Take room on the disk, unless it is there already or there is none to take. Any thread.

        While another thread takes it, there is nothing to do.
        """
        if self._taking.acquire(blocking=False):
            try:
                self._take()
            finally:
                self._taking.release()

    def _take(self) -> None:
        if self._disk.exists(BALLAST_PATH):
            return
        try:
            self._disk.make_directory(BALLAST_PATH.rpartition("/")[0])
            write_atomically(self._disk, BALLAST_PATH, bytes(self._size_bytes))
        except DiskFullError:
            self._is_spent = True
            self._disk.remove(f"{BALLAST_PATH}.tmp")
        except (OverloadedError, StorageFailedError) as error:
            log.warning(LogEvent.RESERVE_NOT_KEPT, error=error.message)
        else:
            if self._is_spent:
                log.info(LogEvent.DISK_HAS_SPACE)
            self._is_spent = False

    def give_up(self) -> bool:
        """Make room for the state of groups; tell whether there was any to make."""
        if self._is_spent or not self._disk.exists(BALLAST_PATH):
            return False
        self._is_spent = True
        self._disk.remove(BALLAST_PATH)
        log.error(LogEvent.DISK_FULL)
        return True

    def check(self) -> None:
        """Refuse what would take the room kept for consumers; look for room now and then."""
        if not self._is_spent:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms >= CHECK_EVERY_MS:
            self._checked_ms = now_ms
            if self._disk.free_bytes() >= 2 * self._size_bytes:
                self.take()
        if self._is_spent:
            raise DiskFullError("the disk is full: what is left of it is kept for consumers")
