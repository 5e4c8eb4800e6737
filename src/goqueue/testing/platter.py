"""What a memory disk holds: the tree that programs see, and the tree a power cut would leave.

A file keeps one buffer for both, so that a sync copies nothing. They share its beginning; then the
program sees bytes not synced yet, and the device still has what a cut not synced yet took away::

    seen       +--------- shared ---------+---- unsynced ----+
    durable    +--------- shared ---------+---- cut ----+

A directory has its names twice. The journal lists the changes of names that are only seen so far.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from goqueue.storage.disk import Buffer
from goqueue.storage.paths import parts_of

PAGE_BYTES: Final = 4096
"""Unit in which a real system writes bytes back, in any order."""


@dataclass(slots=True)
class SyncUnderWay:
    """What a sync that has begun will have made durable when it ends."""

    end: int
    is_cut: bool = False


class FileNode:
    """The bytes of one file, seen and durable."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._shared = 0
        self._cut = b""
        self._dropped: list[range] = []
        self._syncs: list[SyncUnderWay] = []

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write at the end."""
        for buffer in buffers:
            self.content += buffer

    def truncate(self, size: int) -> None:
        """Cut what is seen and remember what was durable."""
        if size < self._shared:
            self._cut = bytes(self.content[size : self._shared]) + self._cut
            self._shared = size
        del self.content[size:]
        self._dropped = [
            range(lost.start, min(lost.stop, size)) for lost in self._dropped if lost.start < size
        ]
        for sync in self._syncs:
            if size < sync.end:
                sync.end = size
                sync.is_cut = True

    def begin_sync(self) -> SyncUnderWay:
        """Note what is there now: bytes that come while the device works are not covered."""
        sync = SyncUnderWay(end=len(self.content))
        self._syncs.append(sync)
        return sync

    def end_sync(self, sync: SyncUnderWay) -> None:
        """Make durable what was there when the sync began."""
        self._syncs.remove(sync)
        if sync.end > self._shared or not sync.is_cut:
            self._shared = max(self._shared, sync.end)
            self._cut = b""

    def fail_sync(self, sync: SyncUnderWay, *, drops_pages: bool) -> None:
        """End a sync that failed; with ``drops_pages`` no later sync will write these bytes."""
        self._syncs.remove(sync)
        if drops_pages and sync.end > self._shared:
            self._dropped.append(range(self._shared, sync.end))

    def lose_power(self, torn: Random | None, *, page_bytes: int) -> None:
        """Keep what is durable; ``torn`` may keep some of the rest."""
        for lost in self._dropped:
            self.content[lost.start : lost.stop] = bytes(len(lost))
        if torn is None or (self._cut and torn.getrandbits(1)):
            self.content[self._shared :] = self._cut
        else:
            self._tear(torn, page_bytes)
        self._shared = len(self.content)
        self._cut = b""
        self._dropped.clear()
        self._syncs.clear()

    def _tear(self, torn: Random, page_bytes: int) -> None:
        size = len(self.content)
        end = torn.choice((self._shared, size, torn.randint(self._shared, size)))
        del self.content[end:]
        if torn.getrandbits(1):
            return
        # Pages reach the device in any order: the length may be there before the bytes are.
        start = self._shared
        while start < end:
            stop = min(end, start - start % page_bytes + page_bytes)
            if torn.getrandbits(1):
                self.content[start:stop] = bytes(stop - start)
            start = stop


class DirectoryNode:
    """The names in one directory, seen and durable."""

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileNode | DirectoryNode

Name = tuple[DirectoryNode, str]

Edit = tuple[DirectoryNode, str, Node | None]
"""One name that now means another node, or none."""

Change = tuple[Edit, ...]
"""Edits that become durable together or not at all: a rename is two."""


class Platter:
    """The device and the system's cache before it; what ``MemoryDisk`` processes share."""

    def __init__(self, *, page_bytes: int = PAGE_BYTES) -> None:
        self.mutex = threading.RLock()
        """Guards the whole tree: a broker syncs in a thread while it appends in another."""
        self.power_cuts = 0
        self._page_bytes = page_bytes
        self._root = DirectoryNode()
        self._journal: list[Change] = []

    def find(self, path: str) -> Node | None:
        """Return what a path names."""
        node: Node | None = self._root
        for name in parts_of(path):
            if not isinstance(node, DirectoryNode):
                return None
            node = node.entries.get(name)
        return node

    def find_directory(self, path: str) -> DirectoryNode:
        """Return a directory or raise FileNotFoundError."""
        node = self.find(path)
        if not isinstance(node, DirectoryNode):
            raise FileNotFoundError(path)
        return node

    def place(self, path: str) -> Name:
        """Return the directory a path lies in, and its name there."""
        parent, _, name = path.rpartition("/")
        return self.find_directory(parent), name

    def change(self, *edits: Edit) -> None:
        """Change names as seen; all these edits become durable together."""
        _apply([edits], "entries")
        self._journal.append(edits)

    def sync_directory(self, directory: DirectoryNode) -> None:
        """Make the names of a directory durable."""
        edits = (edit for change in self._journal for edit in change)
        self.sync_names({(touched, name) for touched, name, _ in edits if touched is directory})

    def sync_names(self, names: set[Name]) -> None:
        """Make names durable, with every earlier change that theirs are built on."""
        committed: list[Change] = []
        pending: list[Change] = []
        for change in reversed(self._journal):
            touched = {(directory, name) for directory, name, _ in change}
            if names.isdisjoint(touched):
                pending.append(change)
            else:
                names |= touched
                committed.append(change)
        _apply(committed[::-1], "durable")
        self._journal = pending[::-1]

    def lose_power(self, torn: Random | None) -> None:
        """Go back to what is durable; ``torn`` may keep some of what is not."""
        if torn is not None:
            _apply(self._journal[: torn.randint(0, len(self._journal))], "durable")
        self._journal.clear()
        self._restore(self._root, torn)
        self.power_cuts += 1

    def _restore(self, directory: DirectoryNode, torn: Random | None) -> None:
        directory.entries = dict(directory.durable)
        for node in directory.entries.values():
            match node:
                case FileNode():
                    node.lose_power(torn, page_bytes=self._page_bytes)
                case DirectoryNode():
                    self._restore(node, torn)


def _apply(changes: Sequence[Change], names: Literal["entries", "durable"]) -> None:
    for directory, name, node in (edit for change in changes for edit in change):
        target = directory.entries if names == "entries" else directory.durable
        if node is None:
            target.pop(name, None)
        else:
            target[name] = node
