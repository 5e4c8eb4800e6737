"""The delayed messages of a partition as columns of numbers, in the order of their offsets.

Shape: calculator. Offsets only grow at the end, so the rank of one in their bitmap is its row in
the column of times. Names given by clients are kept as hashes: whoever finds one compares it with
the message in the log.
"""

from array import array
from collections.abc import Iterable
from typing import Any, Final

import mmh3
import numpy as np
from pyroaring import BitMap64

Numbers = np.ndarray[Any, Any]

_COMPACT_ROWS_MIN: Final = 4_096
"""Fewer rows than this are not worth sweeping."""


def hash_id(name: bytes) -> int:
    """Return the number that stands for a name, small enough for a signed 64-bit column."""
    return int(mmh3.hash64(name, signed=True)[0])


class DelayTable:
    """Offsets with the time each was first due, and hashed names with their offsets."""

    def __init__(self) -> None:
        self._offsets = BitMap64()
        self._due_ms: array[int] = array("q")
        self._hashes: array[int] = array("q")
        self._named: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._due_ms)

    def add(self, offsets: Numbers, due_ms: Numbers) -> None:
        """Take the next messages."""
        first, last = int(offsets[0]), int(offsets[-1])
        assert not self._offsets or first > self._offsets.max(), "offsets only grow"
        if last - first == len(offsets) - 1:
            self._offsets.add_range(first, last + 1)
        else:
            self._offsets.update(offsets.tolist())
        self._due_ms.frombytes(np.ascontiguousarray(due_ms, np.int64).tobytes())

    def name(self, names: Iterable[tuple[int, bytes]]) -> None:
        """Take the names of messages by offset."""
        for offset, name in names:
            self._hashes.append(hash_id(name))
            self._named.append(offset)

    def due_of(self, offset: int) -> int | None:
        """Return when a message was first due."""
        if offset not in self._offsets:
            return None
        return self._due_ms[self._offsets.rank(offset) - 1]

    def missing(self, pending: BitMap64) -> BitMap64:
        """Return those of some offsets that have no time here."""
        return pending - self._offsets

    def named(self, name: bytes) -> list[int]:
        """Return the offsets of messages that may have this name, in order."""
        if not self._hashes:
            return []
        places = np.flatnonzero(np.frombuffer(self._hashes, np.int64) == hash_id(name))
        return [self._named[place] for place in places.tolist()]

    def sweep(self, pending: BitMap64, count: int) -> None:
        """Forget what is no longer pending, once it is most of the table."""
        if len(self._due_ms) > max(2 * count, _COMPACT_ROWS_MIN):
            self.keep(pending)

    def keep(self, pending: BitMap64) -> None:
        """Forget what is no longer pending."""
        self._take(self.columns(pending))

    def columns(self, pending: BitMap64) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return offsets, due times, hashes and named offsets of what is pending."""
        offsets = _numbers(self._offsets)
        due_ms = np.frombuffer(self._due_ms, np.int64) if self._due_ms else _NONE
        hashes = np.frombuffer(self._hashes, np.int64) if self._hashes else _NONE
        named = np.frombuffer(self._named, np.int64) if self._named else _NONE
        wanted = _numbers(pending)
        rows = _rows_in(offsets, wanted)
        is_kept = np.isin(named, wanted)
        return offsets[rows], due_ms[rows], hashes[is_kept], named[is_kept]

    @classmethod
    def of(cls, columns: Iterable[Numbers]) -> "DelayTable":
        """Return the table with these columns."""
        table = cls()
        table._take(columns)
        return table

    def _take(self, columns: Iterable[Numbers]) -> None:
        offsets, due_ms, hashes, named = columns
        self._offsets = BitMap64(array("Q", np.ascontiguousarray(offsets, np.int64).tobytes()))
        self._due_ms, self._hashes, self._named = map(_column, (due_ms, hashes, named))


_NONE: Final[Numbers] = np.empty(0, np.int64)


def _numbers(offsets: BitMap64) -> Numbers:
    return np.frombuffer(offsets.to_array(), np.int64) if offsets else _NONE


def _column(numbers: Numbers) -> "array[int]":
    column: array[int] = array("q")
    column.frombytes(np.ascontiguousarray(numbers, np.int64).tobytes())
    return column


def _rows_in(sorted_numbers: Numbers, wanted: Numbers) -> Numbers:
    """Return where wanted numbers are among sorted ones; those that are not there are left out."""
    if not len(sorted_numbers):
        return _NONE
    places = np.searchsorted(sorted_numbers, wanted)
    places[places == len(sorted_numbers)] = 0
    found: Numbers = places[sorted_numbers[places] == wanted]
    return found
