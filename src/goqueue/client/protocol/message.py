"""Messages as readers get them.

Most of what is known of a message is known of its neighbours, too, and is seldom asked for. So what
is read is handed out in runs: a message is its key, its value and its row in a run. Runs are short
and hold no more than numbers and headers, so that somebody who keeps one message keeps little else.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.core.record.batch import PLAIN_COLUMNS
from goqueue.core.record.columns import headers_of, microseconds
from goqueue.core.record.message import Priority
from goqueue.core.record.row import Row

RUN_ROWS: Final = 256
"""Most messages of a run. The time of each has eight bytes."""

_TIME: Final = struct.Struct("=q")
_ROWS: Final = list(range(RUN_ROWS))


@runtime_checkable
class Message(Protocol):
    """A message of a topic. Times are microseconds since the Unix epoch, UTC."""

    @property
    def topic(self) -> TopicName:
        """The topic it is in."""
        ...

    @property
    def partition(self) -> PartitionId:
        """The partition of the topic."""
        ...

    @property
    def offset(self) -> Offset:
        """Its place in the partition."""
        ...

    @property
    def timestamp_us(self) -> int:
        """When it was sent."""
        ...

    @property
    def key(self) -> bytes | None:
        """What it is about."""
        ...

    @property
    def value(self) -> bytes | None:
        """What it says; None marks its key as deleted."""
        ...

    @property
    def headers(self) -> Mapping[str, bytes] | None:
        """What was sent beside it."""
        ...

    @property
    def priority(self) -> int:
        """Its lane, 0 for the most urgent one."""
        ...

    @property
    def deliver_at_us(self) -> int | None:
        """The time before which it was hidden."""
        ...

    @property
    def is_tombstone(self) -> bool:
        """Whether it marks its key as deleted."""
        ...


class Run(msgspec.Struct, frozen=True, gc=False):
    """What neighbours in a partition share, and by row what is seldom asked for."""

    topic: TopicName
    partition: PartitionId
    first_offset: int
    times: bytes
    headers: Sequence[Mapping[str, bytes] | None] | None = None
    priorities: Sequence[int] | None = None
    deliver_at_us: Sequence[int | None] | None = None


class ReadMessage(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A message of a run."""

    _run: Run
    _row: int
    key: bytes | None
    value: bytes | None

    @property
    def topic(self) -> TopicName:
        """The topic it is in."""
        return self._run.topic

    @property
    def partition(self) -> PartitionId:
        """The partition of the topic."""
        return self._run.partition

    @property
    def offset(self) -> Offset:
        """Its place in the partition."""
        return Offset(self._run.first_offset + self._row)

    @property
    def timestamp_us(self) -> int:
        """When it was sent, in microseconds since the Unix epoch."""
        return int(_TIME.unpack_from(self._run.times, self._row * _TIME.size)[0])

    @property
    def headers(self) -> Mapping[str, bytes] | None:
        """What was sent beside it."""
        return None if self._run.headers is None else self._run.headers[self._row]

    @property
    def priority(self) -> int:
        """Its lane, 0 for the most urgent one."""
        priorities = self._run.priorities
        return int(Priority.NORMAL) if priorities is None else priorities[self._row]

    @property
    def deliver_at_us(self) -> int | None:
        """The time before which it was hidden."""
        return None if self._run.deliver_at_us is None else self._run.deliver_at_us[self._row]

    @property
    def is_tombstone(self) -> bool:
        """Whether it marks its key as deleted."""
        return self.value is None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and _fields(self) == _fields(other)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        told = ", ".join(
            f"{name}={value!r}" for name, value in zip(NAMES, _fields(self), strict=True)
        )
        return f"Message({told})"

    def __reduce__(self) -> tuple[Callable[..., "ReadMessage"], tuple[Any, ...]]:
        """Go alone where it is sent to another process: its neighbours stay."""
        return _alone, _fields(self)


NAMES: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp_us",
    "key",
    "value",
    "headers",
    "priority",
    "deliver_at_us",
)


def _fields(message: Message) -> tuple[Any, ...]:
    return tuple(getattr(message, name) for name in NAMES)


def _alone(*fields: Any) -> ReadMessage:  # noqa: ANN401 - those of NAMES, of their types
    """Return a message with a run of its own."""
    topic, partition, offset, timestamp_us, key, value, headers, priority, deliver_at_us = fields
    times = _TIME.pack(timestamp_us)
    run = Run(topic, partition, offset, times, (headers,), (priority,), (deliver_at_us,))
    return ReadMessage(run, 0, key, value)


def message_of(row: Row, *, topic: TopicName, partition: PartitionId) -> ReadMessage:
    """Return the message of a row frame."""
    return _alone(*_fields(row.message(topic, partition)))


def runs_of(
    batch: pa.RecordBatch, *, topic: TopicName, partition: PartitionId, first_offset: Offset
) -> Iterator[Iterator[ReadMessage]]:
    """Yield the messages of a batch whose first row has ``first_offset``, run by run."""
    is_plain = batch.num_columns == len(PLAIN_COLUMNS)
    names = PLAIN_COLUMNS if is_plain else batch.schema.names
    times = batch.column("timestamp")
    start = times.offset * _TIME.size
    raw = bytes(memoryview(times.buffers()[1])[start : start + len(times) * _TIME.size])
    headers = headers_of(batch) if "headers" in names else None
    priorities = batch.column("priority").to_pylist() if "priority" in names else None
    deliver_at_us = microseconds(batch.column("deliver_at")) if "deliver_at" in names else None
    keys = iter(batch.column("key").to_pylist())
    values = iter(batch.column("value").to_pylist())
    for at in range(0, batch.num_rows, RUN_ROWS):
        end = min(at + RUN_ROWS, batch.num_rows)
        run = Run(
            topic,
            partition,
            first_offset + at,
            raw[at * _TIME.size : end * _TIME.size],
            headers and headers[at:end],
            priorities and priorities[at:end],
            deliver_at_us and deliver_at_us[at:end],
        )
        # The rows come first: where they end, nothing was taken of the keys of the next run.
        yield map(ReadMessage, repeat(run), _ROWS[: end - at], keys, values)
