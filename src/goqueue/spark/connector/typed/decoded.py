"""Decoded values as columns, and why some were not decoded."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from goqueue.spark.connector.typed.fields import Field

REASON_CHARACTERS_MAX: Final = 300
FAULTS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError)
"""What building an array raises for a value that is not of its type."""


class Decoded(NamedTuple):
    """One array for each field, null in every row that has a reason."""

    columns: list[pa.Array]
    reasons: dict[int, str]


class Decoder(Protocol):
    """Decodes the values of a topic."""

    def decode(self, values: pa.Array) -> Decoded:
        """Decode many values; those that are null are null in every column."""
        ...


Record = Mapping[str, Any] | None


class UnreadableError(Exception):
    """A value is not what its schema says."""


def told(error: Exception) -> str:
    """Return the reason an exception gives, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:REASON_CHARACTERS_MAX]


def to_columns(
    records: list[Record],
    fields: Sequence[Field],
    stored: Sequence[pa.DataType],
    reasons: dict[int, str],
) -> list[pa.Array]:
    """Return records as columns; one that does not fit is null and gets a reason.

    ``stored`` is what the values are, which is then turned into the types of the fields.
    """
    try:
        return _columns(records, fields, stored)
    except FAULTS:
        pass
    for row, record in enumerate(records):
        if record is not None:
            try:
                _columns([record], fields, stored)
            except FAULTS as error:
                records[row] = None
                reasons[row] = told(error)
    return _columns(records, fields, stored)


def _columns(
    records: Sequence[Record], fields: Sequence[Field], stored: Sequence[pa.DataType]
) -> list[pa.Array]:
    columns: list[pa.Array] = []
    for field, kind in zip(fields, stored, strict=True):
        name = field.name
        found = [None if record is None else record.get(name) for record in records]
        array = pa.array(found, kind)
        columns.append(cast(array, field.type))
    return columns


def cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as another type, or raise; only times may lose digits."""
    if array.type == kind:
        return array
    return pc.cast(array, options=pc.CastOptions(target_type=kind, allow_time_truncate=True))
