"""Stored batches as readers get them: with topic, partition and offset, in one fixed schema.

No row is touched: columns are added, picked or filled in whole.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset, PartitionId
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
_BATCHES_AHEAD: Final = 4
_OFFSET_ROWS_MAX: Final = 16_384
_OFFSET_ARRAYS_MAX: Final = 16
"""Offsets are counted some batches ahead and sliced from there, for some partitions at a time."""


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
        self._offsets: dict[PartitionId, tuple[Offset, pa.Array]] = {}
        self._places: dict[tuple[str, ...], list[tuple[str, int]]] = {}

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._schema

    def batches_in(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a chunk."""
        for offset, stored in stored_batches_in(chunk):
            rows = stored.num_rows
            arrays = [
                stored.column(place) if place >= 0 else self._added(name, chunk, offset, rows)
                for name, place in self._places_in(stored.schema)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _places_in(self, schema: pa.Schema) -> list[tuple[str, int]]:
        """Return each column with its place in a stored batch, -1 where it is to be added."""
        names = tuple(schema.names)
        places = self._places.get(names)
        if places is None:
            places = [(name, names.index(name) if name in names else -1) for name in self._names]
            self._places[names] = places
        return places

    def _added(self, name: str, chunk: Chunk, offset: Offset, rows: int) -> pa.Array:
        if name == "offset":
            return self._count(chunk.partition, offset, rows)
        if name == "topic":
            return self._constant(name, chunk.topic, rows)
        if name == "partition":
            return self._constant(name, chunk.partition, rows)
        return self._constant(name, int(Priority.NORMAL) if name == "priority" else None, rows)

    def _count(self, partition: PartitionId, offset: Offset, rows: int) -> pa.Array:
        """Return consecutive offsets; counted far ahead once and sliced ever after."""
        first, array = self._offsets.get(partition, (offset, None))
        if array is None or not first <= offset <= first + len(array) - rows:
            end = offset + max(rows, min(rows * _BATCHES_AHEAD, _OFFSET_ROWS_MAX))
            first, array = offset, pa.array(np.arange(offset, end, dtype=np.int64))
            if len(self._offsets) >= _OFFSET_ARRAYS_MAX:
                self._offsets.clear()
            self._offsets[partition] = first, array
        return array.slice(offset - first, rows)

    def _constant(self, name: str, value: object, rows: int) -> pa.Array:
        """Return a column of one value; made once and sliced ever after."""
        array = self._constants.get((name, value))
        if array is None or len(array) < rows:
            kind = SCHEMA.field(name).type
            array = pa.repeat(pa.scalar(value, kind), max(rows, _CONSTANT_ROWS))
            self._constants[name, value] = array
        return array.slice(0, rows)
