"""Which messages of a frame carry a trace of their sender's.

Shape: codec. A batch is looked at as a whole: names and values are compared as columns of bytes,
and only for messages whose sender has them recorded something is made one by one.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from goqueue.core.tracing.traceparent import (
    HEADER,
    TEXT_BYTES,
    TraceParent,
    parse_traceparent,
)

Numbers = np.ndarray[Any, Any]

_NAME: Final = np.frombuffer(HEADER.encode(), np.uint8)
_DASHES: Final = np.array([2, 35, 52])
_ZERO: Final = np.uint8(ord("0"))
_LETTER: Final = np.uint8(ord("a"))
_DIGITS: Final = 10
_LETTERS: Final = 6
_ODD: Final = np.isin(np.arange(256), np.frombuffer(b"13579bdf", np.uint8))


class CallerRows(msgspec.Struct, frozen=True, gc=False):
    """The rows of a frame with a good traceparent, and the traces of those that are recorded."""

    rows: Numbers
    sampled: Mapping[int, TraceParent]


def callers_of_row(parent: TraceParent | None) -> CallerRows | None:
    """Return what a single message carries."""
    if parent is None:
        return None
    return CallerRows(np.zeros(1, np.int64), {0: parent} if parent.is_sampled else {})


def callers_of_batch(headers: pa.Array) -> CallerRows | None:
    """Return what the messages of a batch carry, by its column of headers."""
    places = _named(headers.keys)
    if not len(places):
        return None
    limits = np.frombuffer(headers.buffers()[1], np.int32, len(headers) + 1)
    # What a stranger wrote may have headers that belong to no message.
    places, ends = places[(places >= limits[0]) & (places < limits[-1])], limits[1:]
    bounds = np.frombuffer(headers.items.buffers()[1], np.int32, len(headers.items) + 1)
    starts, sizes = bounds[:-1][places], np.diff(bounds)[places]
    is_usual = sizes == TEXT_BYTES
    sampled: dict[int, TraceParent] = {}
    found = [np.empty(0, np.int64)]
    if is_usual.any():
        rows = np.searchsorted(ends, places[is_usual], side="right")
        text = np.frombuffer(headers.items.buffers()[2], np.uint8)
        texts = _cut(text, starts[is_usual])
        good, is_sampled = _judge(texts)
        found[0] = rows[good]
        sampled = _read(rows[is_sampled], texts[is_sampled].tobytes())
    found.append(_unusual(places[~is_usual], headers, ends, sampled))
    rows = np.sort(np.concatenate(found)) if len(found[-1]) else found[0]
    # A message may have the header twice.
    rows = rows[np.diff(rows, prepend=-1) > 0]
    return CallerRows(rows, sampled) if len(rows) else None


def _named(names: pa.Array) -> Numbers:
    """Return which of all headers are traceparents. Arrow's functions would cost 13 MB."""
    if not len(names):
        return np.empty(0, np.int64)
    ends = np.frombuffer(names.buffers()[1], np.int32, len(names) + 1)
    places = np.flatnonzero(np.diff(ends) == len(_NAME))
    if not len(places):
        return places
    text = np.frombuffer(names.buffers()[2], np.uint8)
    is_it = (text[ends[places][:, None] + np.arange(len(_NAME))] == _NAME).all(axis=1)
    named: Numbers = places[is_it]
    return named


def _cut(text: Numbers, starts: Numbers) -> Numbers:
    """Return the texts of the usual size at some places, one a row; a view where they allow it."""
    steps = np.diff(starts)
    if len(steps) and (steps == steps[0]).all():
        shape, strides = (len(starts), TEXT_BYTES), (int(steps[0]), 1)
        return np.ndarray(shape, np.uint8, text, int(starts[0]), strides)
    return text[starts[:, None] + np.arange(TEXT_BYTES)]


def _read(rows: Numbers, texts: bytes) -> dict[int, TraceParent]:
    """Read good texts, one behind the other."""
    return {
        row: TraceParent(
            int(texts[at + 3 : at + 35], 16), int(texts[at + 36 : at + 52], 16), is_sampled=True
        )
        for row, at in zip(rows.tolist(), range(0, len(texts), TEXT_BYTES), strict=True)
    }


def _judge(texts: Numbers) -> tuple[Numbers, Numbers]:
    """Return which texts of the usual size are good, and which of them are recorded."""
    # Numbers of eight bits wrap around, so that what lies below a range lies above it, too.
    is_right = (texts - _ZERO < _DIGITS) | (texts - _LETTER < _LETTERS)
    is_right[:, _DASHES] = texts[:, _DASHES] == ord("-")
    good: Numbers = np.asarray(is_right.all(axis=1))
    good &= (texts[:, 3:35] != _ZERO).any(axis=1) & (texts[:, 36:52] != _ZERO).any(axis=1)
    good &= (texts[:, :2] != ord("f")).any(axis=1)
    return good, good & _ODD[texts[:, TEXT_BYTES - 1]]


def _unusual(
    places: Numbers, headers: pa.Array, ends: Numbers, sampled: dict[int, TraceParent]
) -> Numbers:
    """Read what is not of the usual size, one by one: later versions, and nonsense."""
    rows: list[int] = []
    for place in places.tolist():
        parent = parse_traceparent(headers.items[place].as_py())
        if parent is not None:
            rows.append(int(np.searchsorted(ends, place, side="right")))
            if parent.is_sampled:
                sampled[rows[-1]] = parent
    return np.array(rows, np.int64)
