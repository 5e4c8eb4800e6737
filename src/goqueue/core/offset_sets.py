"""Walking over sets of offsets.

Shape: calculator.
"""

from array import array

from pyroaring import BitMap64


def each(offsets: BitMap64) -> "array[int]":
    """Return the offsets of a set, ascending; the set may change while they are walked over.

    Walking over a ``BitMap64`` itself leaves 224 bytes behind for ever if it is empty: pyroaring
    1.2 gives the C iterator back behind the last value only.
    """
    return offsets.to_array()


def cut_from(offsets: BitMap64, end_offset: int) -> None:
    """Remove the offsets of a set from one on, in place."""
    if offsets and offsets.max() >= end_offset:
        offsets.remove_range(end_offset, offsets.max() + 1)
