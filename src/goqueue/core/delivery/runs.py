"""Sets of offsets as runs: ``[start, end, start, end, …]``, half-open, as they travel and rest.

Shape: codec.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from pyroaring import BitMap64

Runs = list[int]
"""Half-open ranges, flat: cheap to encode and to read."""


def runs_of(offsets: BitMap64) -> Runs:
    """Return a set as runs, ascending."""
    count = len(offsets)
    if not count:
        return []
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == count:
        return [first, last + 1]
    return runs_in(np.frombuffer(offsets.to_array(), np.uint64).astype(np.int64))


def runs_in(offsets: Sequence[int] | np.ndarray) -> Runs:
    """Return a sequence as runs in its own order: a run ends where the next is not one more."""
    numbers = np.asarray(offsets, np.int64)
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    starts = np.concatenate((numbers[:1], numbers[breaks + 1]))
    ends = np.concatenate((numbers[breaks], numbers[-1:])) + 1
    flat: Runs = np.stack((starts, ends), axis=1).ravel().tolist()
    return flat


def set_of(runs: Iterable[int]) -> BitMap64:
    """Return runs as a set."""
    offsets = BitMap64()
    ends = iter(runs)
    for start, end in zip(ends, ends, strict=True):
        offsets.add_range(start, end)
    return offsets


def put_into(target: BitMap64, offsets: BitMap64) -> None:
    """Add a set to another in place; one run costs the same however large the other is."""
    if not offsets:
        return
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == len(offsets):
        target.add_range(first, last + 1)
    else:
        target |= offsets


def take_from(target: BitMap64, offsets: BitMap64) -> None:
    """Take a set out of another in place; one run costs the same however large the other is."""
    if not offsets or not target:
        return
    first, last = offsets.min(), offsets.max()
    if last - first + 1 == len(offsets):
        target.remove_range(first, last + 1)
    else:
        target -= offsets


def count_of(runs: Sequence[int]) -> int:
    """Return how many offsets there are in runs."""
    return sum(runs[1::2]) - sum(runs[::2])


def are_runs(runs: Sequence[int], *, end_offset: int) -> bool:
    """Tell whether a stranger's runs are runs: pairs, ascending, none empty, within a bound."""
    previous = 0
    for place in range(0, len(runs) - 1, 2):
        start, end = runs[place], runs[place + 1]
        if not previous <= start < end <= end_offset:
            return False
        previous = end
    return len(runs) % 2 == 0
