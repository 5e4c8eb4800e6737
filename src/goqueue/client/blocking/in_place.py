"""Reading a broker's files where they lie, for readers on the same machine.

The broker says where frames are and is not troubled with reading them, and nothing goes through a
socket. The system lets only the broker's own user open what it has open. Whatever is not as the
broker said is read through it after all: it knows what to do about damage.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from goqueue.base.buffers import BufferPool
from goqueue.base.units import MiB
from goqueue.client.protocol.fetching import NotInPlaceError
from goqueue.wire import calls

Identity = tuple[int, int]
"""The device and the inode of a file."""

BUFFER_BYTES_MIN: Final = 4 * MiB
"""From this size on numpy asks the system for large pages, which are filled and read faster."""

_buffers: Final = BufferPool(kept_max=3, kept_bytes_max=5 * MiB)
"""What frames were read into, kept for those of any reader."""


class LocalFiles:
    """The files of a broker that one reader has opened, read ahead by a thread of their own.

    Only one thread reads them, but any may close them. What is done to a file is done in the order
    in which it was asked for, so that no number goes to another file while one is read by it.
    """

    def __init__(self) -> None:
        self._open: dict[Identity, int] = {}
        self._latest: set[Identity] = set()
        """Those of the last reply: some of it may still have to be read when the next one comes."""
        self._thread: ThreadPoolExecutor | None = None
        self._is_closed = False
        # Guards all of the above.
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"<LocalFiles: {len(self._open)} open>"

    def open(self, places: Sequence[calls.Place]) -> None:
        """Open the files of a reply before the broker may close them, and close older ones.

        What cannot be opened is told by ``read``.
        """
        with self._guard:
            for place in places:
                with contextlib.suppress(OSError, NotInPlaceError, RuntimeError):
                    self._descriptor(place)
            current = {(place.device, place.inode) for place in places}
            for identity in self._open.keys() - current - self._latest:
                self._close_behind(self._open.pop(identity))
            self._latest = current

    def read(self, place: calls.Place, size: int) -> Future[memoryview]:
        """Begin to read the bytes at a place; the outcome may be a NotInPlaceError."""
        try:
            with self._guard:
                return self._worker().submit(read_at, self._descriptor(place), place.position, size)
        except (OSError, NotInPlaceError, RuntimeError) as error:
            # No file, or no thread, as in a process that is about to end.
            failed: Future[memoryview] = Future()
            failed.set_exception(NotInPlaceError(str(error)))
            return failed

    def _worker(self) -> ThreadPoolExecutor:
        if self._is_closed:
            raise NotInPlaceError("the files were closed")
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="goqueue-files")
        return self._thread

    def _descriptor(self, place: calls.Place) -> int:
        identity = place.device, place.inode
        descriptor = self._open.get(identity)
        if descriptor is None:
            self._worker()
            descriptor = self._open[identity] = _open(place)
        return descriptor

    def _close_behind(self, descriptor: int) -> None:
        """Close a file when everything that is to be read of it was."""
        try:
            self._worker().submit(os.close, descriptor)
        except (RuntimeError, NotInPlaceError):
            os.close(descriptor)

    def close(self) -> None:
        """Close the files; what was read stays."""
        with self._guard:
            self._is_closed = True
            thread, self._thread = self._thread, None
            files, self._open = self._open, {}
        if thread is not None:
            # What is under way ends by itself; files that wait to be closed there are closed.
            thread.shutdown()
        for descriptor in files.values():
            os.close(descriptor)

    def __del__(self) -> None:
        """Close the files of a reader that was dropped."""
        self.close()


def read_at(descriptor: int, position: int, size: int) -> memoryview:
    """Return so many bytes of an open file, or raise NotInPlaceError."""
    view = _buffers.take(max(size, BUFFER_BYTES_MIN))[:size]
    done = 0
    try:
        while done < size:
            count = os.preadv(descriptor, [view[done:]], position + done)
            if count == 0:
                raise NotInPlaceError("the file is shorter than was said")
            done += count
    except OSError as error:
        raise NotInPlaceError(str(error)) from error
    return view


def is_local(connection: socket.socket) -> bool:
    """Return True if both ends of a connection have one address: they are on one machine."""
    try:
        return bool(connection.getpeername()[0] == connection.getsockname()[0])
    except OSError:
        # It is gone, which whoever uses it next finds out.
        return False


def _open(place: calls.Place) -> int:
    """Open a file that a process has open.

    The process may be one of another container, or the number that of another file by now: what is
    not the file that was meant is not opened, or closed again at once.
    """
    path = Path(f"/proc/{place.process}/fd/{place.descriptor}")
    _check(path.stat(), place)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check(os.fstat(descriptor), place)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(status: os.stat_result, place: calls.Place) -> None:
    if (status.st_dev, status.st_ino) != (place.device, place.inode):
        raise NotInPlaceError("the file is another one")
