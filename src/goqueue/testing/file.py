"""An open file of a memory disk."""

from collections.abc import Sequence

from goqueue.base.ids import Position
from goqueue.storage.disk import Buffer
from goqueue.testing.platter import FileNode
from goqueue.testing.process import Process


class MemoryFile:
    """One open file of a MemoryDisk."""

    def __init__(self, process: Process, path: str, node: FileNode) -> None:
        self._process = process
        self._machine = process.machine
        self._path = path
        self._node = node
        self._size = len(node.content)
        self._is_closed = False

    def __repr__(self) -> str:
        return (
            f"<MemoryFile {self._path}: {'closed' if self._is_closed else f'{self._size} bytes'}>"
        )

    @property
    def path(self) -> str:
        """Name relative to the data directory when the file was opened."""
        return self._path

    def size(self) -> int:
        """Return the length in bytes."""
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at the end, or raise with the file as long as it was before."""
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        with self._machine.platter.mutex:
            self._check_one_writer()
            self._process.perform("append", self._path)
            self._machine.device.take(self._path, size)
            self._node.append(buffers)
            self._size += size

    @property
    def handle(self) -> None:
        """Nobody else can open it: it is in memory."""

    def read(self, position: Position, size_max: int) -> bytes:
        """Return up to ``size_max`` bytes; fewer only at the end of the file."""
        with self._machine.platter.mutex:
            self._check_usable()
            end = min(position + size_max, self._size)
            with memoryview(self._node.content) as content:
                return bytes(content[position:end])

    def read_cached(self, position: Position, size_max: int) -> bytes | None:
        """Return what ``read`` would, or None where that would have to wait for the device."""
        if self._machine.device.is_cold(self._path):
            self._check_usable()
            return None
        return self.read(position, size_max)

    def truncate(self, size: int) -> None:
        """Cut the file; the cut is durable after ``sync``."""
        with self._machine.platter.mutex:
            self._check_one_writer()
            if not 0 <= size <= self._size:
                raise ValueError(f"cannot cut {self._path} of {self._size} bytes to {size}")
            self._process.perform("truncate", self._path)
            self._machine.device.take(self._path, size - self._size)
            self._node.truncate(size)
            self._size = size

    def begin_sync(self) -> None:
        """Promise nothing, as the real one: what was begun may be lost all the same."""

    def sync(self) -> None:
        """Make the bytes and the length durable, or raise StorageFailedError."""
        platter, device = self._machine.platter, self._machine.device
        with platter.mutex:
            self._check_usable()
            self._process.perform("sync", self._path)
            sync = self._node.begin_sync()
        device.wait_in_sync(self._path)
        with platter.mutex:
            self._process.check_alive()
            failure = device.next_sync_failure(self._path)
            if failure is None:
                self._node.end_sync(sync)
                return
            self._node.fail_sync(sync, drops_pages=failure.drops_pages)
        raise failure.as_raised(self._path) from failure.error

    def close(self) -> None:
        """Release the file. Closing twice is fine. Does not sync."""
        self._is_closed = True

    def _check_usable(self) -> None:
        self._process.check_alive()
        if self._is_closed:
            raise ValueError(f"{self._path} is closed")

    def _check_one_writer(self) -> None:
        self._check_usable()
        assert len(self._node.content) == self._size, f"two handles write {self._path}"
