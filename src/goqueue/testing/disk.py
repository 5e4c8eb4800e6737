"""A disk in memory that crashes, fills up and fails on demand.

It keeps the contract of ``goqueue.storage.disk`` to the letter: what was not synced is lost. ::

    disk = MemoryDisk()
    disk.fail_at(7)                      # the process dies at its seventh durable operation
    with pytest.raises(CrashError):
        publish_things(disk)
    disk = disk.crash(torn=Random(1))    # the power fails; this is the next process
    recover(disk)
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random

from goqueue.base.errors import DataDirLockedError, StorageFailedError
from goqueue.storage.paths import by_parent, entry_parts_of
from goqueue.testing.device import EVERYTHING
from goqueue.testing.file import MemoryFile
from goqueue.testing.platter import PAGE_BYTES, DirectoryNode, FileNode, Node, Platter
from goqueue.testing.process import CrashError, Machine, Operation, Process

__all__ = ["CrashError", "MemoryDisk", "MemoryFile", "Operation"]


class MemoryDisk:
    """A directory tree in memory, as one process sees it.

    ``operations`` counts what a crash could separate and ``log`` lists it. Faults of the device
    (room, syncs, cache) outlive processes and power cuts until they are taken back.
    """

    def __init__(self, machine: Machine | None = None, *, page_bytes: int = PAGE_BYTES) -> None:
        self._machine = machine or Machine(Platter(page_bytes=page_bytes))
        self._platter = self._machine.platter
        self._device = self._machine.device
        self._process = Process(self._machine)

    def __repr__(self) -> str:
        state = "alive" if self._process.is_alive() else "dead"
        return f"<MemoryDisk of process {self._process.pid}: {state}, {self.operations} operations>"

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """Open for reading and appending; FileNotFoundError unless it exists or is created."""
        with self._platter.mutex:
            node = self._find_entry(path)
            if node is None and create:
                directory, name = self._platter.place(path)
                self._process.perform("create", path)
                node = FileNode()
                self._platter.change((directory, name, node))
            if node is None:
                raise FileNotFoundError(path)
            return MemoryFile(self._process, path, _file(node, path))

    def exists(self, path: str) -> bool:
        """Return True if a file or directory is there."""
        return self._find(path) is not None

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; a missing directory is empty."""
        with self._platter.mutex:
            node = self._find(path)
            return [] if node is None else sorted(_directory(node, path).entries)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents where missing, durably."""
        self.make_directories([path])

    def make_directories(self, paths: Sequence[str]) -> None:
        """Create directories and their parents where missing, durably; each parent synced once."""
        wanted = by_parent(paths)
        with self._platter.mutex:
            self._process.check_alive()
            for children in wanted.values():
                self._platter.sync_names({self._make_one_directory(child) for child in children})

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        with self._platter.mutex:
            self._process.check_alive()
            directory = self._platter.find_directory(path)
            self._process.perform("sync_directory", path)
        self._device.wait_in_sync(path)
        with self._platter.mutex:
            self._process.check_alive()
            failure = self._device.next_sync_failure(path)
            if failure is None:
                self._platter.sync_directory(directory)
                return
        raise failure.as_raised(path) from failure.error

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` atomically."""
        with self._platter.mutex:
            node, replaced = self._find_entry(source), self._find_entry(target)
            if node is None:
                raise FileNotFoundError(source)
            if node is replaced:
                return
            source_name, target_name = self._platter.place(source), self._platter.place(target)
            if not _may_replace(node, replaced) or f"{target}/".startswith(f"{source}/"):
                raise StorageFailedError(f"cannot rename {source} to {target}")
            self._process.perform("rename", source)
            self._give_back(target, replaced)
            self._platter.change((*source_name, None), (*target_name, node))

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        with self._platter.mutex:
            node = self._find_entry(path)
            if node is not None:
                self._remove_node(path, _file(node, path))

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; a missing one is fine."""
        with self._platter.mutex:
            node = self._find_entry(path)
            if node is not None:
                self._remove_below(path, _directory(node, path))

    def free_bytes(self) -> int:
        """Return how many bytes may still be written."""
        self._process.check_alive()
        return self._device.free_bytes()

    def lock(self) -> None:
        """Take the data directory for this process or raise DataDirLockedError."""
        self._process.check_alive()
        holder = self._machine.lock_holder
        if holder not in (None, self._process) and holder.is_alive():
            raise DataDirLockedError(f"data directory memory: is in use by process {holder.pid}")
        self._machine.lock_holder = self._process

    def unlock(self) -> None:
        """Give the data directory back."""
        if self._machine.lock_holder is self._process:
            self._machine.lock_holder = None

    @property
    def operations(self) -> int:
        """How many durable operations this process began."""
        return len(self._process.log)

    @property
    def log(self) -> Sequence[Operation]:
        """The durable operations this process began, the one it died at included."""
        return self._process.log

    def crash(self, *, torn: Random | None = None) -> "MemoryDisk":
        """Cut the power: every process dies, what was not durable is lost. Return the next one.

        With ``torn`` a part of what was not durable survives: the first of the pending changes of
        names, and of each file some unsynced bytes, cut anywhere, some pages of them zeros.
        """
        with self._platter.mutex:
            self._process.die()
            self._platter.lose_power(torn)
            return self.reopen()

    def kill(self) -> "MemoryDisk":
        """Kill this process only: the system keeps what it wrote. Return the next process."""
        self._process.die()
        return self.reopen()

    def reopen(self) -> "MemoryDisk":
        """Return the same disk as another process sees it; this process lives on."""
        return MemoryDisk(self._machine)

    def fail_at(self, operation_number: int) -> None:
        """Die with CrashError before the operation that would be counted as this number."""
        if operation_number <= self.operations:
            raise ValueError(
                f"operation {operation_number} is over, {self.operations} were counted"
            )
        self._process.fail_at = operation_number

    def fail_sync(
        self,
        path_glob: str,
        error: OSError | None = None,
        *,
        forever: bool = False,
        drops_pages: bool = True,
    ) -> None:
        """Make the next sync of a matching file or directory fail, or with ``forever`` all.

        As on Linux the system then forgets which bytes it owes: they stay readable, but no later
        sync writes them, and after a power cut they are zeros. ``drops_pages=False`` is kinder.
        """
        self._device.fail_sync(path_glob, error, forever=forever, drops_pages=drops_pages)

    def delay_sync(self, hook: Callable[[str], None] | None) -> None:
        """Call ``hook`` with the path inside every sync, which covers only what came before."""
        self._device.delay_sync(hook)

    def fill_up(self, bytes_free: int = 0, *, path_glob: str = EVERYTHING) -> None:
        """Leave so much room to files that match; removing and cutting them makes room again."""
        self._device.fill_up(bytes_free, path_glob=path_glob)

    def make_room(self) -> None:
        """Take back ``fill_up``."""
        self._device.make_room()

    def evict(self, path_glob: str = EVERYTHING) -> None:
        """Let ``read_cached`` of matching files find nothing."""
        self._device.evict(path_glob)

    def heal(self) -> None:
        """Take back every fault of the device."""
        self._device.heal()

    def flip_bits(self, path: str, positions: Iterable[int], *, mask: int = 0x01) -> None:
        """Flip the bits of ``mask`` in the bytes at these positions, as a failing device would."""
        with self._platter.mutex:
            node = self._platter.find(path)
            if node is None:
                raise FileNotFoundError(path)
            for position in positions:
                _file(node, path).content[position] ^= mask

    def _find(self, path: str) -> Node | None:
        self._process.check_alive()
        return self._platter.find(path)

    def _find_entry(self, path: str) -> Node | None:
        entry_parts_of(path)
        return self._find(path)

    def _make_one_directory(self, path: str) -> tuple[DirectoryNode, str]:
        place = self._platter.place(path)
        node = self._platter.find(path)
        if node is None:
            self._process.perform("make_directory", path)
            self._platter.change((*place, DirectoryNode()))
        else:
            _directory(node, path)
        return place

    def _remove_below(self, path: str, directory: DirectoryNode) -> None:
        for name, node in sorted(directory.entries.items()):
            match node:
                case FileNode():
                    self._remove_node(f"{path}/{name}", node)
                case DirectoryNode():
                    self._remove_below(f"{path}/{name}", node)
        self._remove_node(path, directory)

    def _remove_node(self, path: str, node: Node) -> None:
        self._process.perform("remove", path)
        self._give_back(path, node)
        self._platter.change((*self._platter.place(path), None))

    def _give_back(self, path: str, node: Node | None) -> None:
        if isinstance(node, FileNode):
            self._device.take(path, -len(node.content))


def _file(node: Node, path: str) -> FileNode:
    if not isinstance(node, FileNode):
        raise StorageFailedError(f"{path} is a directory")
    return node


def _directory(node: Node, path: str) -> DirectoryNode:
    if not isinstance(node, DirectoryNode):
        raise StorageFailedError(f"{path} is not a directory")
    return node


def _may_replace(node: Node, replaced: Node | None) -> bool:
    if isinstance(replaced, DirectoryNode):
        return isinstance(node, DirectoryNode) and not replaced.entries
    return replaced is None or isinstance(node, FileNode)
