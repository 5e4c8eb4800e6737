"""Walking over sets of offsets."""

import ctypes
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from goqueue.core.offset_sets import each

WALKS = 5_000
C_ITERATOR_BYTES = 208


@given(st.sets(st.integers(0, 2**63)))
def test_each_offset_comes_once_in_order(offsets: set[int]) -> None:
    """As a list would have them."""
    assert each(BitMap64(offsets)).tolist() == sorted(offsets)


def test_the_set_may_change_meanwhile() -> None:
    """What is walked over is what was there at first."""
    offsets = BitMap64(range(10))
    for offset in each(offsets):
        offsets.discard(offset)

    assert not offsets


@pytest.mark.skipif(sys.platform != "linux", reason="asks the allocator of glibc")
def test_walking_over_nothing_leaves_nothing_behind() -> None:
    """Most settlements refuse nothing, some thousand times a second."""
    nothing = BitMap64()
    for _ in range(WALKS // 10):
        list(each(nothing))
    before = allocated_bytes()
    for _ in range(WALKS):
        list(each(nothing))

    assert allocated_bytes() - before < WALKS * C_ITERATOR_BYTES // 10


class Heaps(ctypes.Structure):
    """What ``mallinfo2`` returns; the eighth number is what is allocated."""

    _fields_ = tuple((f"n{number}", ctypes.c_size_t) for number in range(10))


def allocated_bytes() -> int:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("another allocator than that of glibc 2.33")
    library.mallinfo2.restype = Heaps
    return int(library.mallinfo2().n7)
