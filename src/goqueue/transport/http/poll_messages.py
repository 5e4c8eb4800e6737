"""From leased frames to the messages of a reply, in the order they are to be handled."""

from collections.abc import Iterable, Iterator

from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.core.delivery.runs import set_of
from goqueue.core.record.batch import decode_batch
from goqueue.core.record.columns import messages_of
from goqueue.core.record.frame import CONTROL, Buffer, read_header
from goqueue.core.record.message import PRIORITY_NAMES, Message
from goqueue.core.record.row import Row
from goqueue.runtime.polling import Leased
from goqueue.transport.http.stored import write_base64, write_text
from goqueue.wire.http.polling import PolledMessage
from goqueue.wire.times import format_time_us


def write_part(part: Leased, *, is_base64: bool) -> list[PolledMessage]:
    """Return the messages of one lease."""
    topic, partition = part.partition
    start, end = f"{topic}:{partition}:", f":{part.nonce:016x}"
    failures = part.failures
    write = _write_base64 if is_base64 else _write_text
    written: list[PolledMessage] = []
    for message in _messages(part):
        offset = message.offset
        count = failures.get(offset, 0) + 1 if failures else 1
        written.append(write(message, f"{start}{offset}:{count}{end}", count))
    return written


def _messages(part: Leased) -> Iterable[Message]:
    order = part.order
    topic, partition = part.partition
    found = (
        message for buffer in part.frames for message in _decode(buffer, order, topic, partition)
    )
    if _is_ascending(order):
        return found
    by_offset = {message.offset: message for message in found}
    return [
        by_offset[Offset(offset)]
        for place in range(0, len(order), 2)
        for offset in range(order[place], order[place + 1])
    ]


def _is_ascending(order: list[int]) -> bool:
    return all(order[place] < order[place + 1] for place in range(len(order) - 1))


def _decode(
    buffer: Buffer, order: list[int], topic: TopicName, partition: PartitionId
) -> Iterator[Message]:
    """Yield the messages of frames that are leased; others may lie between them."""
    wanted = set_of(order)
    first, last = wanted.min(), wanted.max()
    frames = memoryview(buffer)
    position = 0
    while position < len(frames):
        header = read_header(frames, position)
        frame = frames[position : position + header.size]
        position += header.size
        if header.flags & CONTROL:
            continue
        if not header.is_batch:
            if header.offset in wanted:
                yield Row(header, frame).message(topic, partition)
            continue
        batch = decode_batch(header, frame)
        skip = max(first - header.offset, 0)
        begin = Offset(header.offset + skip)
        batch = batch.slice(skip, max(last + 1 - begin, 0))
        rows = batch.num_rows
        if not rows:
            continue
        messages = messages_of(batch, topic=topic, partition=partition, first_offset=begin)
        if wanted.range_cardinality(begin, begin + rows) == rows:
            yield from messages
        else:
            yield from (message for message in messages if message.offset in wanted)


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
