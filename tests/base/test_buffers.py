"""Buffers that are lent, and come back by themselves."""

import gc

import numpy as np
import pyarrow as pa

from goqueue.base.buffers import BufferPool
from goqueue.base.units import KiB, MiB

SIZE = 300 * KiB


def address_of(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


def test_a_buffer_nobody_looks_at_is_lent_again() -> None:
    """The same memory serves the next one of about its size."""
    pool = BufferPool(kept_max=2, kept_bytes_max=MiB)
    view = pool.take(SIZE)
    first = address_of(view)
    del view
    gc.collect()

    assert address_of(pool.take(SIZE - 10)) == first


def test_a_buffer_somebody_looks_at_stays_theirs() -> None:
    """A slice, or a column of Arrow in it, keeps all of it."""
    pool = BufferPool(kept_max=2, kept_bytes_max=MiB)
    view = pool.take(SIZE)
    view[:] = b"a" * SIZE
    kept = pa.py_buffer(view[100:200])
    del view
    gc.collect()
    others = [pool.take(SIZE) for _ in range(4)]
    for other in others:
        other[:] = b"b" * SIZE

    assert kept.to_pybytes() == b"a" * 100


def test_no_more_is_kept_than_it_may() -> None:
    """Neither too many buffers nor large ones."""
    pool = BufferPool(kept_max=2, kept_bytes_max=MiB)
    views = [pool.take(SIZE) for _ in range(5)] + [pool.take(2 * MiB)]
    assert [len(view) for view in views] == [SIZE] * 5 + [2 * MiB]
    views.clear()
    gc.collect()

    assert repr(pool) == "<BufferPool: [327680, 327680]>"


def test_a_small_one_does_not_hold_a_large_buffer() -> None:
    """What is held is about what was asked for."""
    pool = BufferPool(kept_max=2, kept_bytes_max=MiB)
    pool.take(MiB).release()
    gc.collect()
    view = pool.take(SIZE)

    assert len(view) == SIZE
    assert repr(pool) == "<BufferPool: [1048576]>"
