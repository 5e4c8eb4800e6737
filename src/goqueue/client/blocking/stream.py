"""What a synchronous read returns: an iterator over runs of items, one item at a time."""

from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Stream(Generic[Item]):
    """Yields the items of each run. Ends its reading when it is closed or dropped.

    A loop iterates over the runs themselves: no frame of ours is entered for each item.
    """

    def __init__(self, runs: Generator[Iterable[Item], None, None]) -> None:
        self._runs = runs
        self._items: Iterator[Item] = chain.from_iterable(runs)

    def __iter__(self) -> Iterator[Item]:
        return self._items

    def __next__(self) -> Item:
        return next(self._items)

    def close(self) -> None:
        """Stop reading and release the connection."""
        self._items = iter(())
        self._runs.close()
