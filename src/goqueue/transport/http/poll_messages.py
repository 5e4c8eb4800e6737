"""From leased frames to the messages of a reply, in the order they are to be handled."""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat

import pyarrow as pa

from goqueue.base.ids import Offset
from goqueue.core.delivery.runs import set_of
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import fields_of, messages_of, microseconds
from goqueue.core.record.frame import CONTROL, Buffer, read_header
from goqueue.core.record.message import PRIORITY_NAMES, Message, Priority
from goqueue.core.record.row import Row
from goqueue.runtime.leasing import Leased
from goqueue.transport.http.stored import write_base64, write_text
from goqueue.wire.http.polling import PolledMessage
from goqueue.wire.times import SECOND_US, format_time_us


class _Writer:
    """Writes the messages of one lease."""

    def __init__(self, part: Leased, *, is_base64: bool) -> None:
        self._topic, self._partition = part.partition
        self._failures = part.failures
        self._start, self._end = f"{self._topic}:{self._partition}:", f":{part.nonce:016x}"
        self._is_base64 = is_base64
        self._wanted = set_of(part.order)
        self.written: list[PolledMessage] = []

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
                self._write(Row(header, frame).message(self._topic, self._partition))

    def take_gathered(self, buffer: Buffer, gathered: Sequence[int]) -> None:
        """Write the messages of a batch that lie far apart in the log."""
        batch = decode_batch(read_header(buffer), memoryview(buffer))
        pairs = zip(gathered[::2], gathered[1::2], strict=True)
        offsets = chain.from_iterable(range(start, end) for start, end in pairs)
        fields = fields_of(batch)
        for message in map(Message, repeat(self._topic), repeat(self._partition), offsets, *fields):
            if message.offset in self._wanted:
                self._write(message)

    def _take_batch(self, batch: pa.RecordBatch, offset: Offset) -> None:
        skip = max(self._wanted.min() - offset, 0)
        begin = Offset(offset + skip)
        batch = batch.slice(skip, max(self._wanted.max() + 1 - begin, 0))
        rows = batch.num_rows
        if not rows:
            return
        is_whole = self._wanted.range_cardinality(begin, begin + rows) == rows
        is_plain = is_whole and not self._failures and not self._is_base64
        if is_plain and "headers" not in batch.schema.names and self._write_plain(batch, begin):
            return
        messages = messages_of(
            batch, topic=self._topic, partition=self._partition, first_offset=begin
        )
        for message in messages:
            if is_whole or message.offset in self._wanted:
                self._write(message)

    def _write_plain(self, batch: pa.RecordBatch, begin: Offset) -> bool:
        """Write a batch by columns, which takes half the time; tell if it is not all text."""
        offsets = range(begin, begin + batch.num_rows)
        start, end = self._start, f":1{self._end}"
        lanes: Iterable[str] = repeat(PRIORITY_NAMES[Priority.NORMAL])
        if "priority" in batch.schema.names:
            lanes = [PRIORITY_NAMES[lane] for lane in batch.column("priority").to_pylist()]
        try:
            values = _texts(batch.column("value"))
            keys = [key or None for key in _texts(batch.column("key"))]
        except UnicodeDecodeError:
            return False
        self.written += map(
            PolledMessage,
            offsets,
            _moments(batch.column("timestamp")),
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


def write_part(part: Leased, *, is_base64: bool) -> list[PolledMessage]:
    """Return the messages of one lease."""
    writer = _Writer(part, is_base64=is_base64)
    for buffer in part.frames[:-1] if part.gathered else part.frames:
        writer.take(buffer)
    if part.gathered:
        writer.take_gathered(part.frames[-1], part.gathered)
    order = part.order
    if not part.gathered and all(
        order[place] < order[place + 1] for place in range(len(order) - 1)
    ):
        return writer.written
    by_offset = {message.offset: message for message in writer.written}
    return [
        by_offset[offset]
        for place in range(0, len(order), 2)
        for offset in range(order[place], order[place + 1])
    ]


def _texts(column: pa.Array) -> list[str | None]:
    """Return a column of bytes as text, or raise UnicodeDecodeError."""
    return [one if one is None else one.decode() for one in column.to_pylist()]


def _moments(column: pa.Array) -> list[str]:
    """Return a column of times as text; neighbours mostly share their second."""
    known, whole = -1, ""
    moments: list[str] = []
    for time_us in microseconds(column):
        second, fraction = divmod(time_us or 0, SECOND_US)
        if second != known:
            known, whole = second, format_time_us(second * SECOND_US).partition(".")[0]
        moments.append(f"{whole}.{fraction:06d}000Z")
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
