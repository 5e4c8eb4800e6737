"""Keys as numbers: the same key has the same number, for as long as a process lives.

Shape: calculator. A number is the sum, cut to 64 bits, of every byte times a secret that belongs to
its place; a whole column is worked out at once. Of a sum the upper 48 bits count, in which two keys
agree with a chance of about 2**-48, whoever chose them. The others are room for a place, so that
sorting numbers with places needs no second column.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from goqueue.core.delivery.runs import Numbers

NO_KEY: Final = -1
"""The number of messages without a key. No key has it."""
STEP: Final = 1 << 16
"""Numbers of keys are multiples of it."""
_PLACES_MIN: Final = 64
_BYTES_AT_ONCE: Final = 1 << 13
EQUALS_BYTES_AT_ONCE: Final = 1 << 16
"""Each byte takes eight, twice, while it is worked out."""
# Of this process alone, as Python's hashes of bytes are.
_SEED: Final = np.uint64(hash(b"the secrets of keys") & (2**64 - 1))


def key_numbers(column: pa.Array) -> Numbers:
    """Return the numbers of a column of keys."""
    count = len(column)
    _, ends_buffer, bytes_buffer = column.buffers()
    if not count:
        return np.empty(0, np.int64)
    # Who sent the column said how large its buffers are: they may be larger than they need to be.
    ends = np.frombuffer(ends_buffer, np.int32, column.offset + count + 1)[column.offset :]
    first, last = int(ends[0]), int(ends[-1])
    held = np.frombuffer(bytes_buffer, np.uint8) if last > first else np.empty(0, np.uint8)
    numbers = _numbers(held[first:last], ends - first)
    if column.null_count:
        numbers[np.asarray(column.is_null())] = NO_KEY
    return numbers


def key_number(key: bytes | None) -> int:
    """Return the number of one key."""
    if key is None:
        return NO_KEY
    return int(_numbers(np.frombuffer(key, np.uint8), np.array([0, len(key)]))[0])


def _numbers(held: Numbers, ends: Numbers) -> Numbers:
    """Return the numbers of keys that lie behind one another."""
    sizes = ends[1:] - ends[:-1]
    longest = int(sizes.max())
    if longest * len(sizes) == len(held):
        sums = _sums_of_equals(held.reshape(len(sizes), longest))
    else:
        sums = np.zeros(len(sizes), np.uint64)
        places = np.flatnonzero(sizes)
        starts = ends[places]
        # Some at a time: columns that fit the processor's memory are several times as fast.
        breaks = np.flatnonzero(np.diff(starts // _BYTES_AT_ONCE)) + 1
        for part in np.split(np.arange(len(places)), breaks):
            at = places[part]
            begin, end = ends[at[0]], ends[at[-1] + 1]
            sums[at] = _sums(held[begin:end], starts[part] - begin, sizes[at])
    numbers: Numbers = sums.view(np.int64) & -STEP
    return numbers


def _sums_of_equals(keys: Numbers) -> Numbers:
    """Return the sums of keys of one size."""
    count, size = keys.shape
    sums = np.empty(count, np.uint64)
    at_once = max(EQUALS_BYTES_AT_ONCE // max(size, 1), 1)
    for start in range(0, count, at_once):
        # One more than each byte, so that a zero counts.
        parts = keys[start : start + at_once].astype(np.uint64) + np.uint64(1)
        sums[start : start + at_once] = parts @ _secrets(size)
    return sums


def _sums(held: Numbers, starts: Numbers, sizes: Numbers) -> Numbers:
    within = np.arange(len(held))
    within -= np.repeat(starts, sizes)
    products = _secrets(int(sizes.max())).take(within)
    products *= held + np.uint64(1)
    return np.add.reduceat(products, starts)


def _secrets(count: int) -> Numbers:
    return _secrets_up_to(max(1 << (count - 1).bit_length(), _PLACES_MIN))[:count]


@lru_cache
def _secrets_up_to(count: int) -> Numbers:
    """Return one number for every place (SplitMix64)."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + _SEED
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    secrets: Numbers = mixed ^ (mixed >> np.uint64(31))
    return secrets
