"""A sparse index: where to begin looking.

Shape: codec. Entries are two signed 64-bit numbers, big-endian, 16 bytes. The offset index maps the
first offset of a frame to its position; the time index maps a time to such an offset: no message
before it is later. Both ascend, so both are searched by bisection; both speak of the same frames,
so each can be checked against the other. The last entry of a sealed segment is its end.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from goqueue.base.errors import CorruptFrameError
from goqueue.base.limits import INDEX_ENTRY_BYTES


class SparseIndex:
    """Pairs of numbers, ascending in both columns."""

    __slots__ = ("_keys", "_values")

    def __init__(self) -> None:
        self._keys = array("q")
        self._values = array("q")

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._keys, self._values, strict=True)

    def __repr__(self) -> str:
        return f"<SparseIndex of {len(self)} entries, last {self.last()}>"

    def __getitem__(self, place: int) -> tuple[int, int]:
        return self._keys[place], self._values[place]

    @property
    def values(self) -> "array[int]":
        """The second numbers of all entries."""
        return self._values

    def add(self, key: int, value: int) -> None:
        """Append an entry; it may not lie before the last one."""
        assert not self._keys or key >= self._keys[-1], "index keys ascend"
        assert not self._values or value >= self._values[-1], "index values ascend"
        self._keys.append(key)
        self._values.append(value)

    def last(self) -> tuple[int, int] | None:
        """Return the newest entry."""
        return (self._keys[-1], self._values[-1]) if self._keys else None

    def entry_at_or_before(self, key: int) -> tuple[int, int] | None:
        """Return the last entry whose key is at most ``key``."""
        place = bisect_right(self._keys, key)
        return self[place - 1] if place else None

    def count_before(self, *, key: int) -> int:
        """Return how many entries have a key less than ``key``."""
        return bisect_left(self._keys, key)

    def agrees_with(self, other: "SparseIndex") -> int:
        """Return for how many entries, from the first on, the other's values are our keys."""
        count = min(len(self), len(other))
        if self._keys[:count] == other.values[:count]:
            return count
        pairs = zip(self._keys, other.values, strict=False)
        return next(place for place, (key, value) in enumerate(pairs) if key != value)

    def cut(self, count: int) -> None:
        """Keep only the first ``count`` entries."""
        del self._keys[count:]
        del self._values[count:]

    def count_below(self, *, value: int) -> int:
        """Return how many entries have a value less than ``value``."""
        return bisect_left(self._values, value)

    def encode(self, start: int = 0) -> bytes:
        """Return the entries from the ``start``-th on as bytes."""
        pairs = array("q", bytes(INDEX_ENTRY_BYTES * (len(self) - start)))
        pairs[0::2] = self._keys[start:]
        pairs[1::2] = self._values[start:]
        return _big_endian(pairs).tobytes()

    @classmethod
    def decode(cls, raw: bytes) -> "SparseIndex":
        """Read an index back, refusing one that is cut or out of order."""
        if len(raw) % INDEX_ENTRY_BYTES:
            raise CorruptFrameError(f"an index of {len(raw)} bytes has a cut entry")
        pairs = array("q", raw)
        _big_endian(pairs)
        index = cls()
        index._keys = pairs[0::2]
        index._values = pairs[1::2]
        if not _ascends(index._keys) or not _ascends(index._values):
            raise CorruptFrameError("an index is out of order")
        return index


def _ascends(numbers: "array[int]") -> bool:
    if numbers and numbers[0] < 0:
        return False
    return all(map(int.__le__, numbers, numbers[1:]))


def _big_endian(pairs: "array[int]") -> "array[int]":
    if sys.byteorder == "little":
        pairs.byteswap()
    return pairs
