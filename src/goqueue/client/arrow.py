"""Stored batches as readers get them: with topic, partition and offset, in one fixed schema.

No row is touched: columns are added, picked or filled in whole.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset
from goqueue.client.reader import Chunk, stored_batches_in
from goqueue.core.record.batch import HEADERS_TYPE, TIMESTAMP_TYPE
from goqueue.core.record.message import Priority

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP_TYPE, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("priority", pa.int8(), nullable=False),
        pa.field("deliver_at", TIMESTAMP_TYPE),
    ]
)
"""Every column a reader can ask for, with the types Spark uses."""

DEFAULT_COLUMNS: Final = tuple(name for name in SCHEMA.names if name != "deliver_at")
_CONSTANT_ROWS: Final = 16_384


class Columns:
    """Turns chunks into record batches of some columns."""

    def __init__(self, columns: Sequence[str] | None) -> None:
        names = DEFAULT_COLUMNS if columns is None else tuple(columns)
        unknown = [name for name in names if name not in SCHEMA.names]
        if unknown or not names or len(set(names)) != len(names):
            raise InvalidRequestError(
                f"columns: pick some of {', '.join(SCHEMA.names)}, each once; got {list(names)}"
            )
        self._names = names
        self._schema = pa.schema([SCHEMA.field(name) for name in names])
        self._constants: dict[tuple[str, object], pa.Array] = {}

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._schema

    def batches_in(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a chunk."""
        for offset, stored in stored_batches_in(chunk):
            arrays = [self._column(name, chunk, offset, stored) for name in self._names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, chunk: Chunk, offset: Offset, stored: pa.RecordBatch) -> pa.Array:
        rows = stored.num_rows
        if name == "offset":
            return pa.array(np.arange(offset, offset + rows, dtype=np.int64))
        if name == "topic":
            return self._constant(name, chunk.topic, rows)
        if name == "partition":
            return self._constant(name, chunk.partition, rows)
        place = stored.schema.get_field_index(name)
        if place >= 0:
            return stored.column(place)
        return self._constant(name, int(Priority.NORMAL) if name == "priority" else None, rows)

    def _constant(self, name: str, value: object, rows: int) -> pa.Array:
        """Return a column of one value; made once and sliced ever after."""
        array = self._constants.get((name, value))
        if array is None or len(array) < rows:
            kind = SCHEMA.field(name).type
            array = pa.repeat(pa.scalar(value, kind), max(rows, _CONSTANT_ROWS))
            self._constants[name, value] = array
        return array.slice(0, rows)
