"""The batch nearly everybody sends, written by hand: messages with a key and a value, and no more.

Shape: codec. The bytes are those Arrow writes for such a batch, and everybody reads them by Arrow.
Arrow lets go of the interpreter for every column and every batch; where many threads want it, that
costs more than a batch of a few hundred messages.

     0      40       72        88                 216     224               272
    +------+--------+---------+------------------+-------+-----------------+-----------------------
    | head | body   | rows    | 8 buffers: where | count | 3 columns: rows | key ends, keys, value
    |      | bytes …| count … | and how long     |       | and nulls       | ends, values, times
    +------+--------+---------+------------------+-------+-----------------+-----------------------

Every buffer of the body begins at a multiple of eight.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from goqueue.base.fast_path import fast_path

Numbers = np.ndarray[Any, Any]

_MESSAGE: Final = struct.Struct("<40sq24sq8s16q8s6q")
_HEAD: Final = bytes.fromhex(
    "ffffffff0801000014000000000000000c0016000600050008000c000c0000000003040018000000"
)
_TABLE: Final = bytes.fromhex("00000a0018000c00040008000a0000009c00000010000000")
_BUFFERS: Final = bytes.fromhex("0000000008000000")
_COLUMNS: Final = bytes.fromhex("0000000003000000")
_ALIGNMENT: Final = 8
_PADDING: Final = tuple(bytes(-size % _ALIGNMENT) for size in range(_ALIGNMENT))
"""What follows a buffer, by its size modulo eight."""


class _Cells:
    """A column of bytes, one behind the other."""

    __slots__ = ("_data", "_ends")

    def __init__(self, cells: Sequence[bytes]) -> None:
        self._ends = np.zeros(len(cells) + 1, "<i4")
        sizes = np.fromiter(map(len, cells), "<i4", len(cells))
        np.add.accumulate(sizes, out=self._ends[1:])
        self._data = memoryview(b"".join(cells))

    def cut(self, start: int, end: int) -> tuple[Numbers, memoryview]:
        """Return where each of some cells ends, from zero on, and their bytes."""
        ends = self._ends[start : end + 1]
        first, last = int(ends[0]), int(ends[-1])
        return ends - ends[0], self._data[first:last]


class PlainRows:
    """Messages, of which any run can be had as a batch. Raises TypeError where one has no bytes."""

    __slots__ = ("_keys", "_times_us", "_values")

    column_set: Final = 0

    def __init__(self, keys: Sequence[bytes], values: Sequence[bytes], times_us: Numbers) -> None:
        self._keys = _Cells(keys)
        self._values = _Cells(values)
        self._times_us = np.ascontiguousarray(times_us, "<i8")

    @fast_path(
        of="Arrow's RecordBatch.serialize",
        bench="publish",
        test="tests/core/test_plain_batch.py",
    )
    def batch(self, start: int, end: int) -> bytes:
        """Return the Arrow message of the rows from one to before another."""
        key_ends, keys = self._keys.cut(start, end)
        value_ends, values = self._values.cut(start, end)
        padding = _PADDING[key_ends.nbytes % _ALIGNMENT]
        return b"".join(
            (
                _message(end - start, len(keys), len(values)),
                key_ends.data,
                padding,
                keys,
                _PADDING[len(keys) % _ALIGNMENT],
                value_ends.data,
                padding,
                values,
                _PADDING[len(values) % _ALIGNMENT],
                self._times_us[start:end].data,
            )
        )


def _message(rows: int, key_bytes: int, value_bytes: int) -> bytes:
    """Return all that comes before the body; it follows from these numbers."""
    ends = 4 * (rows + 1)
    keys_at = ends + -ends % _ALIGNMENT
    value_ends_at = keys_at + key_bytes + -key_bytes % _ALIGNMENT
    values_at = value_ends_at + keys_at
    times_at = values_at + value_bytes + -value_bytes % _ALIGNMENT
    keys = (0, 0, 0, ends, keys_at, key_bytes)
    values = (value_ends_at, 0, value_ends_at, ends, values_at, value_bytes)
    times = (times_at, 0, times_at, 8 * rows)
    nodes = (rows, 0, rows, 0, rows, 0)
    size = times_at + 8 * rows
    return _MESSAGE.pack(
        _HEAD, size, _TABLE, rows, _BUFFERS, *keys, *values, *times, _COLUMNS, *nodes
    )
