"""What the queue wants to know of a frame: rows that are not normal, delayed, or traced.

Shape: codec. Found for whole batches at once; most frames have nothing of it and cost nothing.
"""

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from goqueue.base.units import US_PER_MS
from goqueue.core.record.batch import (
    DELIVER_AT_COLUMN,
    HEADERS_COLUMN,
    PRIORITY_COLUMN,
    batch_fields,
    decode_batch,
)
from goqueue.core.record.frame import CONTROL, PRIORITY_NORMAL, Buffer, FrameHeader
from goqueue.core.record.row import Row
from goqueue.core.tracing.callers import CallerRows, callers_of_batch, callers_of_row

DELAY_ID: Final = "goqueue-delay-id"
"""Header with the name a client gave a delayed message."""

ON_CONFLICT: Final = "goqueue-on-conflict"
"""Header that says what becomes of a delayed message whose name is taken by one that waits."""
REFUSE: Final = b"error"
REPLACE: Final = b"replace"

Numbers = np.ndarray[Any, Any]


class Conflict(msgspec.Struct, frozen=True, gc=False):
    """A delayed row that does not want to wait beside another of its name."""

    row: int
    name: bytes
    is_replacing: bool


class Delays(msgspec.Struct, frozen=True, gc=False):
    """The delayed rows of a frame, in order, and when each is due."""

    rows: Numbers
    due_ms: Numbers
    ids: tuple[tuple[int, bytes], ...] = ()
    """Rows that have a name of their own, with it."""
    wishes: tuple[tuple[int, bytes], ...] = ()
    """Rows that say what becomes of them where their name is taken, with what they say."""

    @property
    def conflicts(self) -> list[Conflict]:
        """Return the rows that do not want to wait beside others of their name."""
        names = dict(self.ids)
        return [
            Conflict(row, names[row], wish == REPLACE) for row, wish in self.wishes if row in names
        ]


class QueueRows(msgspec.Struct, frozen=True, gc=False):
    """The rows of a frame that a queue treats in a way of their own."""

    priorities: Numbers | None
    """The lane of every row, or None where all are normal."""
    delays: Delays | None
    callers: CallerRows | None = None
    """The rows that carry a trace of their sender's."""


def rows_of_batch(batch: pa.RecordBatch, column_set: int) -> QueueRows | None:
    """Return what is special in a batch that was checked."""
    priorities = delays = callers = None
    if column_set & PRIORITY_COLUMN:
        priorities = np.array(batch.column("priority"), np.int8)
        priorities = priorities if (priorities != PRIORITY_NORMAL).any() else None
    if column_set & DELIVER_AT_COLUMN:
        delays = _delays(batch, has_headers=bool(column_set & HEADERS_COLUMN))
    if column_set & HEADERS_COLUMN:
        callers = callers_of_batch(batch.column("headers"))
    if priorities is None and delays is None and callers is None:
        return None
    return QueueRows(priorities, delays, callers)


def _delays(batch: pa.RecordBatch, *, has_headers: bool) -> Delays | None:
    column = batch.column("deliver_at")
    if column.null_count == len(column):
        return None
    is_delayed = validity(column)
    rows = np.flatnonzero(is_delayed)
    times_us = np.frombuffer(column.buffers()[1], np.int64, len(column))[is_delayed]
    if not has_headers:
        return Delays(rows, _due_ms(times_us))
    headers = batch.column("headers")
    keys = headers.keys.to_pylist()
    ids = _header_of(DELAY_ID, headers, keys, is_delayed)
    wishes = _header_of(ON_CONFLICT, headers, keys, is_delayed) if ids else ()
    return Delays(rows, _due_ms(times_us), ids, wishes)


def validity(column: pa.Array) -> Numbers:
    """Return which rows have a value. By hand: Arrow's functions would take 13 MB of memory."""
    if not column.null_count:
        return np.ones(len(column), bool)
    bits = np.frombuffer(column.buffers()[0], np.uint8)
    return np.unpackbits(bits, count=len(column), bitorder="little").astype(bool)


def _due_ms(times_us: Numbers) -> Numbers:
    # Rounded up: a message is never due before its microsecond.
    return -(-times_us // US_PER_MS)


def _header_of(
    wanted: str, headers: pa.Array, keys: list[str], is_delayed: Numbers
) -> tuple[tuple[int, bytes], ...]:
    """Return the delayed rows that have a header, with its value."""
    places = [place for place, name in enumerate(keys) if name == wanted]
    if not places:
        return ()
    ends = np.frombuffer(headers.buffers()[1], np.int32, len(headers) + 1)[1:]
    rows = np.searchsorted(ends, places, side="right").tolist()
    return tuple(
        (row, headers.items[place].as_py())
        for row, place in zip(rows, places, strict=True)
        if is_delayed[row]
    )


def rows_of_row(row: Row) -> QueueRows | None:
    """Return what is special in a single message."""
    priority, deliver_at_us = row.header.priority, row.deliver_at_us
    callers = callers_of_row(row.caller)
    if priority == PRIORITY_NORMAL and deliver_at_us is None and callers is None:
        return None
    delays = None
    if deliver_at_us is not None:
        headers = row.headers or {}
        ids, wishes = (
            ((0, headers[name]),) if name in headers else () for name in (DELAY_ID, ON_CONFLICT)
        )
        times_us = np.array([deliver_at_us], np.int64)
        delays = Delays(np.zeros(1, np.int64), _due_ms(times_us), ids, wishes)
    priorities = None if priority == PRIORITY_NORMAL else np.array([priority], np.int8)
    return QueueRows(priorities, delays, callers)


def rows_of_frame(header: FrameHeader, frame: Buffer) -> QueueRows | None:
    """Return what is special in a frame of the log."""
    if header.flags & CONTROL:
        return None
    if not header.is_batch:
        is_plain = header.priority == PRIORITY_NORMAL and not header.headers_size
        return None if is_plain else rows_of_row(Row(header, frame))
    column_set = batch_fields(header, frame).column_set
    if not column_set & (PRIORITY_COLUMN | DELIVER_AT_COLUMN | HEADERS_COLUMN):
        return None
    return rows_of_batch(decode_batch(header, frame), column_set)
