"""From the columns of a DataFrame to stored batches: which are taken, and as what.

Shape: calculator.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from goqueue import Priority
from goqueue.base.errors import InvalidRequestError, PartitionNotFoundError
from goqueue.base.limits import PRIORITIES
from goqueue.base.names import check_name
from goqueue.base.units import NS_PER_US, US_PER_MS
from goqueue.core.producers.murmur import Numbers, hash_keys
from goqueue.core.record.batch import (
    DELIVER_AT_COLUMN,
    HEADERS_COLUMN,
    HEADERS_TYPE,
    PRIORITY_COLUMN,
    SCHEMAS,
    TIMESTAMP_TYPE,
)
from goqueue.spark.connector.options import OptionsError

_TEXT: Final = (StringType, BinaryType)
_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "topic": (StringType,),
    "partition": _INTEGERS,
    "key": _TEXT,
    "value": _TEXT,
    "headers": (MapType, ArrayType),
    "priority": _INTEGERS,
    "timestamp": (TimestampType,),
    "deliver_at": (TimestampType,),
    "delay_ms": _INTEGERS,
}
"""What a DataFrame that is written may have, and the types that are understood."""


def check_columns(schema: StructType, *, topic: str | None) -> None:
    """Refuse a DataFrame that cannot be written, naming everything that is wrong with it."""
    problems = [
        f"column {one.name!a} is {one.dataType.simpleString()}; it must be"
        f" {' or '.join(kind.typeName() for kind in COLUMNS[one.name])}"
        for one in schema
        if one.name in COLUMNS and not isinstance(one.dataType, COLUMNS[one.name])
    ]
    unknown = [one.name for one in schema if one.name not in COLUMNS]
    if unknown:
        problems.append(f"unknown columns {unknown}; select some of {', '.join(COLUMNS)}")
    names = schema.fieldNames()
    if "value" not in names:
        problems.append("there is no column 'value'")
    if topic is None and "topic" not in names:
        problems.append("say where to: option 'topic' or a column 'topic'")
    if "deliver_at" in names and "delay_ms" in names:
        problems.append("deliver_at and delay_ms contradict each other; keep one of them")
    if problems:
        raise OptionsError("; ".join(problems))


class SinkRows:
    """Turns batches of Spark into batches of the log, by topic and partition."""

    def __init__(self, topic: str | None, partition_count: Callable[[str], int]) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._counts: dict[str, int] = {}
        # Tasks begin their turns at different places, or the first partition would get the most.
        self._turn = time.monotonic_ns() // NS_PER_US

    def cut(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch, Numbers]]:
        """Yield topic, stored batch and the partition of each row."""
        for topic, rows in self._by_topic(batch):
            yield topic, stored_batch(rows), self._partitions(topic, rows)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        place = batch.schema.get_field_index("topic")
        if place < 0:
            assert self._topic is not None, "checked on the driver"
            yield self._topic, batch
            return
        topics = batch.column(place)
        if self._topic is not None:
            topics = pc.fill_null(topics, self._topic)
        elif topics.null_count:
            raise InvalidRequestError("a row has no topic, and there is no option 'topic'")
        for topic in pc.unique(topics).to_pylist():
            name = check_name(topic, field="topic")
            is_one = topic is not None and len(pc.unique(topics)) == 1
            yield name, batch if is_one else batch.filter(pc.equal(topics, topic))

    def _partitions(self, topic: str, batch: pa.RecordBatch) -> Numbers:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._partition_count(topic)
        numbers = self._by_key(batch, count)
        place = batch.schema.get_field_index("partition")
        if place >= 0:
            given = batch.column(place)
            chosen = pc.fill_null(given.cast(pa.int64()), -1).to_numpy()
            if len(chosen) and (chosen.max() >= count or (chosen < -1).any()):
                worst = int(chosen.max()) if chosen.max() >= count else int(chosen.min())
                raise PartitionNotFoundError(
                    f"invalid partition {worst} ({topic} has {count} partitions)"
                )
            numbers = np.where(chosen >= 0, chosen, numbers)
        return numbers

    def _by_key(self, batch: pa.RecordBatch, count: int) -> Numbers:
        """Return partitions by key; rows without one take turns."""
        place = batch.schema.get_field_index("key")
        keys = None if place < 0 else batch.column(place)
        if keys is None:
            return self._turns(batch.num_rows, count)
        numbers: Numbers = (hash_keys(_binary(keys)) % np.uint32(count)).astype(np.int64)
        if keys.null_count:
            numbers = np.where(np.asarray(keys.is_valid()), numbers, self._turns(len(keys), count))
        return numbers

    def _turns(self, rows: int, count: int) -> Numbers:
        turns = (self._turn + np.arange(rows)) % count
        self._turn += rows
        return turns


def stored_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows in one of the stored schemas, with the columns they need."""
    rows = batch.num_rows
    given = {name: batch.column(name) for name in batch.schema.names}
    now_us = time.time_ns() // NS_PER_US
    key = given.get("key")
    arrays = [
        pa.nulls(rows, pa.binary()) if key is None else _binary(key),
        _binary(given["value"]),
        _times(given.get("timestamp"), rows, now_us),
    ]
    column_set = 0
    for bit, column in (
        (HEADERS_COLUMN, _headers(given.get("headers"))),
        (PRIORITY_COLUMN, _priorities(given.get("priority"))),
        (DELIVER_AT_COLUMN, _due(given.get("deliver_at"), given.get("delay_ms"), now_us)),
    ):
        if column is not None:
            column_set |= bit
            arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[column_set])


def _binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _times(given: pa.Array | None, rows: int, now_us: int) -> pa.Array:
    now = pa.scalar(now_us, pa.int64())
    if given is None:
        return pa.repeat(now, rows).view(TIMESTAMP_TYPE)
    times = given.cast(TIMESTAMP_TYPE)
    if not times.null_count:
        return times
    return pc.fill_null(times, now.cast(TIMESTAMP_TYPE))


def _headers(given: pa.Array | None) -> pa.Array | None:
    if given is None or given.null_count == len(given):
        return None
    if pa.types.is_map(given.type):
        return given.cast(HEADERS_TYPE)
    # Kafka's way: an array of structs of key and value.
    offsets, entries = given.offsets, given.values
    if given.null_count:
        offsets = pc.if_else(pa.concat_arrays([given.is_valid(), pa.array([True])]), offsets, None)
    names, values = entries.field(0).cast(pa.string()), _binary(entries.field(1))
    return pa.MapArray.from_arrays(offsets, names, values).cast(HEADERS_TYPE)


def _priorities(given: pa.Array | None) -> pa.Array | None:
    if given is None or given.null_count == len(given):
        return None
    numbers = pc.fill_null(given.cast(pa.int64()), int(Priority.NORMAL))
    bounds: Any = pc.min_max(numbers).as_py()
    if bounds["min"] < 0 or bounds["max"] >= PRIORITIES:
        wrong = bounds["min"] if bounds["min"] < 0 else bounds["max"]
        raise InvalidRequestError(f"priority: {wrong} is not between 0 and {PRIORITIES - 1}")
    return numbers.cast(pa.int8())


def _due(at: pa.Array | None, delay_ms: pa.Array | None, now_us: int) -> pa.Array | None:
    if at is not None:
        return None if at.null_count == len(at) else at.cast(TIMESTAMP_TYPE)
    if delay_ms is None or delay_ms.null_count == len(delay_ms):
        return None
    wait_us = pc.multiply_checked(delay_ms.cast(pa.int64()), US_PER_MS)
    return pc.add_checked(wait_us, now_us).view(TIMESTAMP_TYPE)
