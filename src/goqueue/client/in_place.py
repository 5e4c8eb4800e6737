"""Reading a broker's files where they lie, for readers on the same machine.

The broker says where frames are and is not troubled with reading them, and nothing goes through a
socket. The system lets only the broker's own user open what it has open. Whatever is not as the
broker said is read through it after all: it knows what to do about damage.
"""

import contextlib
import os
import socket
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from goqueue.base.buffers import BufferPool
from goqueue.base.units import MiB
from goqueue.wire import calls

FILES_MAX: Final = 512
"""Files kept open; those of the last replies, of which there are fewer, are among them."""

BUFFER_BYTES_MIN: Final = 4 * MiB
"""From this size on numpy asks the system for large pages, which are filled and read faster."""

_buffers: Final = BufferPool(kept_max=3, kept_bytes_max=5 * MiB)
"""What frames were read into, kept for those of any reader."""


class NotInPlaceError(Exception):
    """Frames are not where they were said to be, or not to be had there."""


class LocalFiles:
    """The files of a broker that one reader has opened, read ahead by a thread of their own."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], int] = {}
        self._thread: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"<LocalFiles: {len(self._open)} open>"

    def open(self, places: Iterable[calls.Place]) -> None:
        """Open files before the broker may close them; ``read`` tells of those that cannot be."""
        for place in places:
            with contextlib.suppress(OSError, NotInPlaceError):
                self._descriptor(place)

    def read(self, place: calls.Place, size: int) -> Future[memoryview]:
        """Begin to read the bytes at a place; the outcome may be a NotInPlaceError."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="goqueue-files")
        try:
            descriptor = self._descriptor(place)
        except (OSError, NotInPlaceError) as error:
            failed: Future[memoryview] = Future()
            failed.set_exception(NotInPlaceError(str(error)))
            return failed
        return self._thread.submit(read_at, descriptor, place.position, size)

    def _descriptor(self, place: calls.Place) -> int:
        identity = place.device, place.inode
        descriptor = self._open.get(identity)
        if descriptor is None:
            descriptor = self._open[identity] = _open(place)
            if len(self._open) > FILES_MAX:
                os.close(self._open.pop(next(iter(self._open))))
        return descriptor

    def close(self) -> None:
        """Close the files; what was read stays."""
        if self._thread is not None:
            # No number of a file may go to another one while something is read from it.
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
        while self._open:
            os.close(self._open.popitem()[1])

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
    """Tell whether both ends of a connection have one address: they are on one machine."""
    return bool(connection.getpeername()[0] == connection.getsockname()[0])


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
