"""Frames that one end of a connection keeps for the other, known to both by their numbers.

Shape: calculator. What is put on a shelf gets the next number; when there is too much, the oldest
leave. Both ends count alike, so nobody needs to be told what is still there.
"""

from typing import Generic, TypeVar

from goqueue.base.limits import SHELF_BYTES_MAX, SHELF_FRAMES_MAX, SHELF_ROW_BYTES
from goqueue.core.record.batch import BatchFields

T = TypeVar("T")


def room_for(fields: BatchFields, size: int) -> int:
    """Return how many bytes a batch frame of a size counts: about what its messages take unpacked.

    Part of the protocol, as are the limits: who counts otherwise is talking about other frames.
    """
    return max(fields.raw_size, size) + fields.rows * SHELF_ROW_BYTES


class Shelf(Generic[T]):
    """The last things that were put here, as many as there is room for."""

    def __init__(self) -> None:
        self._things: dict[int, tuple[T, int]] = {}
        self._size = 0
        self.next_number = 0
        """The number of what is put here next."""

    def __repr__(self) -> str:
        return f"<Shelf: {len(self._things)} things, {self._size} bytes>"

    def get(self, number: int) -> T | None:
        """Return what has a number, if it is still here."""
        found = self._things.get(number)
        return None if found is None else found[0]

    def put(self, thing: T, size: int) -> list[T]:
        """Put a thing here; return those that had to leave, the thing itself if it is too large."""
        self._things[self.next_number] = (thing, size)
        self.next_number += 1
        self._size += size
        left: list[T] = []
        while self._size > SHELF_BYTES_MAX or len(self._things) > SHELF_FRAMES_MAX:
            oldest, oldest_size = self._things.pop(next(iter(self._things)))
            self._size -= oldest_size
            left.append(oldest)
        return left
