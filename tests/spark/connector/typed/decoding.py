"""What tests of typed columns share: values in, rows out."""

from typing import Any, Protocol

import pyarrow as pa

from goqueue.spark.connector.typed.decoded import Decoded


class Decoder(Protocol):
    """Decodes the values of a topic."""

    def decode(self, values: pa.Array) -> Decoded:
        """Decode many values."""
        ...


def decode(one: Decoder, *values: bytes | None) -> Decoded:
    """Decode values as they are stored."""
    return one.decode(pa.array(values, pa.binary()))


def rows(decoded: Decoded) -> list[tuple[Any, ...]]:
    """Return what was decoded, row by row."""
    return list(zip(*(column.to_pylist() for column in decoded.columns), strict=True))
