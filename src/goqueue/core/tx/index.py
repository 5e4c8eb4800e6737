"""Which messages of a partition belong to transactions that are open or were aborted.

Shape: calculator. Sets of offsets, noted as frames are appended, kept in the partition's snapshot
and rebuilt from the log where that is lost.
"""

from collections.abc import Iterator
from typing import Any

from pyroaring import BitMap64

from goqueue.base.ids import Offset


class TxIndex:
    """The transactions of one partition."""

    def __init__(self) -> None:
        self._open: dict[int, BitMap64] = {}
        self.uncommitted = BitMap64()
        """Messages of open transactions: not yet to be seen. Always the same object."""
        self.aborted = BitMap64()
        """Messages of aborted transactions: never to be seen. Always the same object."""

    def __repr__(self) -> str:
        return f"<TxIndex: {len(self._open)} open, {len(self.aborted)} messages aborted>"

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of open transactions."""
        return iter(list(self._open))

    def __contains__(self, number: int) -> bool:
        return number in self._open

    def note(self, number: int, offset: int, rows: int) -> None:
        """Take notice of messages of a transaction."""
        self._open.setdefault(number, BitMap64()).add_range(offset, offset + rows)
        self.uncommitted.add_range(offset, offset + rows)

    def end(self, number: int, *, is_commit: bool) -> BitMap64:
        """End a transaction; return its messages, which are now to be seen, or never."""
        offsets = self._open.pop(number, None)
        if offsets is None:
            return BitMap64()
        self.uncommitted -= offsets
        if not is_commit:
            self.aborted |= offsets
        return offsets

    def stable_offset(self, end_offset: Offset) -> Offset:
        """Return the offset before which every transaction has ended (the last stable offset)."""
        return Offset(min(self.uncommitted.min(), end_offset)) if self.uncommitted else end_offset

    def last_offset_of(self, number: int) -> Offset | None:
        """Return the last message of an open transaction."""
        offsets = self._open.get(number)
        return Offset(offsets.max()) if offsets else None

    def count(self, number: int) -> int:
        """Return how many messages an open transaction has."""
        offsets = self._open.get(number)
        return len(offsets) if offsets else 0

    def first_offset_of(self, number: int) -> Offset | None:
        """Return where an open transaction begins."""
        offsets = self._open.get(number)
        return Offset(offsets.min()) if offsets else None

    def trim(self, start_offset: Offset) -> None:
        """Forget messages that are no longer in the log."""
        self.aborted.remove_range(0, start_offset)

    def snapshot(self) -> list[Any]:
        """Return everything, for a file."""
        aborted = self.aborted.copy()
        aborted.run_optimize()
        opened = [(number, offsets.serialize()) for number, offsets in self._open.items()]
        return [opened, aborted.serialize()]

    @classmethod
    def restore(cls, plain: list[Any]) -> "TxIndex":
        """Return what a file kept; raises ValueError if it is not of our making."""
        index = cls()
        opened, aborted = plain
        for number, offsets in opened:
            index._open[int(number)] = BitMap64.deserialize(offsets)
            index.uncommitted |= index._open[int(number)]
        index.aborted |= BitMap64.deserialize(aborted)
        return index
