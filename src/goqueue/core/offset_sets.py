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
