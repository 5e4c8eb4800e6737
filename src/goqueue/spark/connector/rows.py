"""From stored batches to the columns Spark asked for, without touching a row."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from goqueue.base.units import MiB
from goqueue.client.protocol.arrow import Columns
from goqueue.client.protocol.chunk import Chunk

GATHERED_ROWS: Final = 8_192
GATHERED_BYTES_MAX: Final = 4 * MiB
"""Small batches are put together up to these: each has a price of its own in Spark.

From some 4,000 rows on it is less than that of a copy, and larger ones do not fit the caches.
"""


class RowMapping:
    """Turns chunks into record batches of a schema that Spark takes as it is."""

    def __init__(self, names: Sequence[str]) -> None:
        self._columns = Columns(names)

    def batches_in(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of chunks, small ones together."""
        return gathered(batch for chunk in chunks for batch in self._columns.batches_in(chunk))


def gathered(
    batches: Iterable[pa.RecordBatch], *, rows_max: int = GATHERED_ROWS
) -> Iterator[pa.RecordBatch]:
    """Put small batches together; large ones pass as they are."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > rows_max or size > GATHERED_BYTES_MAX):
            yield _together(held)
            held, rows, size = [], 0, 0
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
    if held:
        yield _together(held)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch under a schema that differs in what may be null only."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
