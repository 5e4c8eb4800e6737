"""Messages as columns: from drafts to Arrow, and from Arrow to message objects.

Shape: codec. Columns that no message needs are left out, so the common batch has three.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from goqueue.base.ids import Offset, PartitionId, TopicName
from goqueue.core.record.batch import (
    DEDUP_ID_COLUMN,
    DELIVER_AT_COLUMN,
    HEADERS_COLUMN,
    HEADERS_TYPE,
    PRIORITY_COLUMN,
    SCHEMAS,
    TIMESTAMP_TYPE,
)
from goqueue.core.record.message import Draft, Message, Priority


def build_batch(
    *,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_us: Sequence[int] | pa.Array,
    headers: Sequence[Mapping[str, bytes] | None] | None = None,
    priorities: Sequence[int] | None = None,
    deliver_at_us: Sequence[int | None] | None = None,
    dedup_ids: Sequence[bytes | None] | None = None,
) -> tuple[pa.RecordBatch, int]:
    """Return the record batch and its column set."""
    column_set = 0
    arrays = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        timestamps_us
        if isinstance(timestamps_us, pa.Array)
        else pa.array(timestamps_us, TIMESTAMP_TYPE),
    ]
    if headers is not None:
        column_set |= HEADERS_COLUMN
        maps = [None if one is None else list(one.items()) for one in headers]
        arrays.append(pa.array(maps, HEADERS_TYPE))
    if priorities is not None:
        column_set |= PRIORITY_COLUMN
        arrays.append(pa.array(priorities, pa.int8()))
    if deliver_at_us is not None:
        column_set |= DELIVER_AT_COLUMN
        arrays.append(pa.array(deliver_at_us, TIMESTAMP_TYPE))
    if dedup_ids is not None:
        column_set |= DEDUP_ID_COLUMN
        arrays.append(pa.array(dedup_ids, pa.binary()))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[column_set]), column_set


def batch_of_drafts(drafts: Sequence[Draft]) -> tuple[pa.RecordBatch, int]:
    """Return a batch with just the columns these messages need."""
    has_headers = any(draft.headers for draft in drafts)
    has_priority = any(draft.priority != Priority.NORMAL for draft in drafts)
    has_delay = any(draft.deliver_at_us is not None for draft in drafts)
    has_dedup = any(draft.dedup_id is not None for draft in drafts)
    return build_batch(
        keys=[draft.key for draft in drafts],
        values=[draft.value for draft in drafts],
        timestamps_us=[draft.timestamp_us for draft in drafts],
        headers=[draft.headers for draft in drafts] if has_headers else None,
        priorities=[draft.priority for draft in drafts] if has_priority else None,
        deliver_at_us=[draft.deliver_at_us for draft in drafts] if has_delay else None,
        dedup_ids=[draft.dedup_id for draft in drafts] if has_dedup else None,
    )


def messages_of(
    batch: pa.RecordBatch, *, topic: TopicName, partition: PartitionId, first_offset: Offset
) -> Iterable[Message]:
    """Yield the messages of a batch whose first row has ``first_offset``."""
    return map(
        Message,
        repeat(topic),
        repeat(partition),
        range(first_offset, first_offset + batch.num_rows),
        *fields_of(batch),
    )


def fields_of(batch: pa.RecordBatch) -> tuple[Iterable[Any], ...]:
    """Return the fields of the messages of a batch, those behind the offset, column by column."""
    names = batch.schema.names
    return (
        microseconds(batch.column("timestamp")),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        headers_of(batch) if "headers" in names else repeat(None),
        batch.column("priority").to_pylist() if "priority" in names else repeat(Priority.NORMAL),
        microseconds(batch.column("deliver_at")) if "deliver_at" in names else repeat(None),
    )


def headers_of(batch: pa.RecordBatch) -> list[dict[str, bytes] | None]:
    """Return the headers of the messages of a batch that has such a column."""
    return [dict(one) if one else None for one in batch.column("headers").to_pylist()]


def microseconds(column: pa.Array) -> list[int | None]:
    """Return a timestamp column as integers; making datetimes costs ten times as much."""
    numbers: list[int | None] = column.view(pa.int64()).to_pylist()
    return numbers
