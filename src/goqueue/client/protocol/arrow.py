"""Stored batches as readers get them: with topic, partition and offset, in one fixed schema.

No row is touched: columns are added, picked or filled in whole.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from goqueue.base.errors import InvalidRequestError
from goqueue.base.ids import Offset, PartitionId
from goqueue.client.protocol.chunk import Chunk, stored_batches_in
from goqueue.core.record.batch import HEADERS_TYPE, PLAIN_COLUMNS, TIMESTAMP_TYPE
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
_OFFSET_ROWS_MAX: Final = 8_000
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
        self._places: dict[tuple[str, ...], _Places] = {}

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._schema

    def batches_in(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a chunk."""
        from_arrays, schema = pa.RecordBatch.from_arrays, self._schema
        plain = self._places_in(PLAIN_COLUMNS)
        constants: dict[str, pa.Array] = {}
        for offset, stored in stored_batches_in(chunk):
            rows = stored.num_rows
            # Asking a batch for its names costs as much as making it, and most have just these.
            is_plain = stored.num_columns == len(PLAIN_COLUMNS)
            places = plain if is_plain else self._places_in(stored.schema.names)
            arrays = [None if place is None else stored.column(place) for place in places.stored]
            for column, name in places.constant:
                array = constants.get(name)
                if array is None or len(array) < rows:
                    array = constants[name] = self._constant(name, chunk, rows)
                arrays[column] = array.slice(0, rows)
            if places.offset is not None:
                arrays[places.offset] = self._count(chunk.partition, offset, rows)
            yield from_arrays(arrays, schema=schema)

    def _places_in(self, stored: Sequence[str]) -> "_Places":
        """Return where each column comes from, for batches that are stored with these."""
        names = tuple(stored)
        places = self._places.get(names)
        if places is None:
            added = [(column, name) for column, name in enumerate(self._names) if name not in names]
            places = self._places[names] = _Places(
                [names.index(name) if name in names else None for name in self._names],
                [(column, name) for column, name in added if name != "offset"],
                self._names.index("offset") if "offset" in self._names else None,
            )
        return places

    def _count(self, partition: PartitionId, offset: Offset, rows: int) -> pa.Array:
        """Return consecutive offsets; counted far ahead once and sliced ever after."""
        first, array = self._offsets.get(partition, (offset, None))
        if array is None or not first <= offset <= first + len(array) - rows:
            end = offset + max(rows, min(rows * _BATCHES_AHEAD, _OFFSET_ROWS_MAX))
            first, array = offset, _column("offset", np.arange(offset, end, dtype=np.int64))
            if len(self._offsets) >= _OFFSET_ARRAYS_MAX:
                self._offsets.clear()
            self._offsets[partition] = first, array
        return array.slice(offset - first, rows)

    def _constant(self, name: str, chunk: Chunk, rows: int) -> pa.Array:
        """Return a column of one value, long enough; made once and sliced ever after."""
        value = _VALUES[name](chunk)
        array = self._constants.get((name, value))
        if array is None or len(array) < rows:
            array = _repeated(name, value, max(rows, _CONSTANT_ROWS))
            self._constants[name, value] = array
        return array


class _Places(NamedTuple):
    """Where the columns of a batch come from: what is stored, what is one value for all rows."""

    stored: list[int | None]
    constant: list[tuple[int, str]]
    offset: int | None


def _repeated(name: str, value: object, rows: int) -> pa.Array:
    """Return a column with one value in every row."""
    if isinstance(value, int):
        return _column(name, np.full(rows, value, _NUMBERS[name]))
    if isinstance(value, str):
        text = value.encode()
        ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(text))
        return _column(name, ends, text * rows)
    return pa.nulls(rows, SCHEMA.field(name).type)


def _column(name: str, numbers: NDArray[np.signedinteger], text: bytes | None = None) -> pa.Array:
    """Return a column made from memory; of anything else Arrow asks pandas, and loads it first."""
    data = [] if text is None else [pa.py_buffer(text)]
    rows = len(numbers) - len(data)
    buffers = [None, pa.py_buffer(numbers), *data]
    return pa.Array.from_buffers(SCHEMA.field(name).type, rows, buffers)


_NUMBERS: Final[dict[str, type[np.signedinteger]]] = {"partition": np.int32, "priority": np.int8}

_VALUES: Final[dict[str, Callable[[Chunk], object]]] = {
    "topic": lambda chunk: chunk.topic,
    "partition": lambda chunk: chunk.partition,
    "headers": lambda _: None,
    "priority": lambda _: int(Priority.NORMAL),
    "deliver_at": lambda _: None,
}
"""What a column has in every row where it is not stored."""
