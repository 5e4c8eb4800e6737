"""From leased frames to the messages of a reply, in the order they are to be handled."""

import binascii
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby, repeat

import msgspec
import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from goqueue.base.ids import Offset
from goqueue.core.delivery.runs import (
    Numbers,
    array_of,
    is_ascending,
    list_in,
    numbers_in,
    set_of,
)
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import fields_of
from goqueue.core.record.cut import rows_at, times_in
from goqueue.core.record.frame import CONTROL, Buffer, read_header
from goqueue.core.record.message import PRIORITY_NAMES, Message, Priority
from goqueue.core.record.row import Row
from goqueue.core.tracing.traceparent import HEADER, traceparents_of
from goqueue.runtime.queue.delivery_read import GatheredRows
from goqueue.runtime.queue.leasing import Leased
from goqueue.runtime.queue.polling import Polled
from goqueue.wire.http.polling import PolledMessage, PollReply
from goqueue.wire.http.stored import write_base64, write_text
from goqueue.wire.times import SECOND_US, format_time_us


class _Writer:
    """Writes the messages of one lease."""

    def __init__(self, part: Leased, *, is_base64: bool) -> None:
        self._topic, self._partition = part.partition
        self._failures = part.failures
        self._start, self._end = f"{self._topic}:{self._partition}:", f":{part.nonce:016x}"
        self._is_base64 = is_base64
        self._order = part.order
        self.written: list[PolledMessage] = []

    @cached_property
    def _wanted(self) -> BitMap64:
        return set_of(self._order)

    def take(self, buffer: Buffer) -> None:
        """Write the messages of frames that are leased; others may lie between them."""
        frames = memoryview(buffer)
        position = 0
        while position < len(frames):
            header = read_header(frames, position)
            frame = frames[position : position + header.size]
            position += header.size
            if header.flags & CONTROL:
                continue
            if header.is_batch:
                self._take_batch(decode_batch(header, frame), header.offset)
            elif header.offset in self._wanted:
                self._write_row(Row(header, frame))

    def _write_row(self, row: Row) -> None:
        message = row.message(self._topic, self._partition)
        if row.caller is not None:
            message = msgspec.structs.replace(message, headers=row.headers_with_trace)
        self._write(message)

    def take_apart(self, apart: GatheredRows) -> None:
        """Write the messages of a batch that lie far apart in the log."""
        if apart.offsets == self._order:
            self._write_rows(apart.batch, list_in(apart.offsets))
        else:
            self._take_some(apart.batch, numbers_in(apart.offsets))

    def _take_batch(self, batch: pa.RecordBatch, offset: Offset) -> None:
        begin = max(self._wanted.min(), offset)
        end = min(self._wanted.max() + 1, offset + batch.num_rows)
        if begin < end:
            rows = batch.slice(begin - offset, end - begin)
            if self._wanted.range_cardinality(begin, end) == end - begin:
                self._write_rows(rows, list(range(begin, end)))
            else:
                self._take_some(rows, np.arange(begin, end))

    def _take_some(self, batch: pa.RecordBatch, offsets: Numbers) -> None:
        """Write those rows of a batch that are leased."""
        is_wanted = np.isin(offsets, array_of(self._wanted), assume_unique=True)
        self._write_rows(rows_at(batch, np.flatnonzero(is_wanted)), offsets[is_wanted].tolist())

    def _write_rows(self, batch: pa.RecordBatch, numbers: list[int]) -> None:
        is_plain = not self._failures and not self._is_base64
        if is_plain and self._write_plain(batch, numbers):
            return
        topic, partition = repeat(self._topic), repeat(self._partition)
        for message in map(Message, topic, partition, numbers, *fields_of(batch)):
            self._write(message)

    def _write_plain(self, batch: pa.RecordBatch, offsets: Sequence[int]) -> bool:
        """Write a batch by columns, which takes half the time; tell if it is not all text."""
        names = batch.schema.names
        if "headers" in names:
            return False
        lanes: Iterable[str] = repeat(PRIORITY_NAMES[Priority.NORMAL])
        if "priority" in names:
            lanes = [PRIORITY_NAMES[lane] for lane in batch.column("priority").to_pylist()]
        try:
            values = _texts(batch.column("value"))
            keys = [key or None for key in _texts(batch.column("key"))]
        except UnicodeDecodeError:
            return False
        start, end = self._start, f":1{self._end}"
        self.written += map(
            PolledMessage,
            offsets,
            _moments(times_in(batch)),
            values,
            [f"{start}{offset}{end}" for offset in offsets],
            repeat(self._topic),
            repeat(self._partition),
            lanes,
            repeat(1),
            keys,
        )
        return True

    def _write(self, message: Message) -> None:
        count = self._failures.get(message.offset, 0) + 1
        receipt = f"{self._start}{message.offset}:{count}{self._end}"
        write = _write_base64 if self._is_base64 else _write_text
        self.written.append(write(message, receipt, count))


def write_polled(polled: Polled, *, has_one_topic: bool, is_base64: bool) -> PollReply:
    """Return leased messages by partition; by topic, too, where the group reads several."""
    messages: dict[str, list[PolledMessage]] = {}
    next_offset: dict[str, int] = {}
    for part in polled.parts:
        topic, partition = part.partition
        key = str(partition) if has_one_topic else f"{topic}:{partition}"
        messages[key] = _write_part(part, is_base64=is_base64)
        next_offset[key] = part.end_offset
    return PollReply(messages=messages, next_offset=next_offset, generation=polled.generation)


def _write_part(part: Leased, *, is_base64: bool) -> list[PolledMessage]:
    """Return the messages of one lease."""
    writer = _Writer(part, is_base64=is_base64)
    for buffer in part.frames:
        writer.take(buffer)
    if part.apart is not None:
        writer.take_apart(part.apart)
    if part.traced:
        _add_traces(writer.written, part)
    is_one_piece = part.apart is None or not part.frames
    is_in_order = is_one_piece and is_ascending(part.order)
    if is_in_order and len(writer.written) == part.rows:
        return writer.written
    by_offset = {message.offset: message for message in writer.written}
    return [by_offset[offset] for offset in list_in(part.order)]


def _add_traces(written: list[PolledMessage], part: Leased) -> None:
    """Give messages that are traced the header of their trace."""
    traces = traceparents_of(part.tag, numbers_in(part.traced))
    rows = dict(zip([message.offset for message in written], range(len(written)), strict=True))
    for offset, trace in traces.items():
        row, text = rows[offset], trace
        message = written[row]
        if message.headers_encoding is not None:
            text = binascii.b2a_base64(trace.encode(), newline=False).decode()
        headers = {**(message.headers or {}), HEADER: text}
        written[row] = msgspec.structs.replace(message, headers=headers)


def _texts(column: pa.Array) -> list[str | None]:
    """Return a column of bytes as text, or raise UnicodeDecodeError."""
    texts: list[str | None] = column.view(pa.utf8()).to_pylist()
    return texts


def _moments(times_us: Numbers) -> list[str]:
    """Return a column of times as text; neighbours mostly share their second."""
    times: list[int] = times_us.tolist()
    moments: list[str] = []
    for second, run in groupby(times, SECOND_US.__rfloordiv__):
        whole = format_time_us(second * SECOND_US).partition(".")[0]
        # The leading one keeps the zeros of the fraction.
        behind = (second - 1) * SECOND_US
        moments += [f"{whole}.{str(time_us - behind)[1:]}000Z" for time_us in run]
    return moments


def _write_text(message: Message, receipt: str, count: int) -> PolledMessage:
    value, key = message.value, message.key
    if message.headers:
        return _write_any(message, receipt, count, is_base64=False)
    try:
        return PolledMessage(
            message.offset,
            format_time_us(message.timestamp_us),
            None if value is None else value.decode(),
            receipt,
            message.topic,
            message.partition,
            PRIORITY_NAMES[message.priority],
            count,
            key.decode() if key else None,
        )
    except UnicodeDecodeError:
        return _write_any(message, receipt, count, is_base64=False)


def _write_base64(message: Message, receipt: str, count: int) -> PolledMessage:
    return _write_any(message, receipt, count, is_base64=True)


def _write_any(message: Message, receipt: str, count: int, *, is_base64: bool) -> PolledMessage:
    stored = write_base64(message) if is_base64 else write_text(message)
    return PolledMessage(
        stored.offset,
        stored.timestamp,
        stored.value,
        receipt,
        message.topic,
        message.partition,
        stored.priority,
        count,
        stored.key,
        stored.headers,
        stored.encoding,
        stored.key_encoding,
        stored.headers_encoding,
    )
