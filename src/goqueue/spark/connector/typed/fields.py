"""What the fields of a schema are as columns: names, types, and how much there may be of them.

Shape: calculator. Types are Arrow's; Spark's follow from them one to one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa

from goqueue.base.limits import SPARK_FIELDS_MAX
from goqueue.client.protocol.arrow import SCHEMA
from goqueue.spark.connector.options import OptionsError

CORRUPT: Final = "_corrupt"
"""The column that says why a value could not be read, with its text."""
TEXT: Final = pa.string()
TAKEN: Final = frozenset({*SCHEMA.names, CORRUPT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field at the top of a schema and the column it becomes."""

    name: str
    column: str
    type: pa.DataType


class Growth:
    """Counts the fields of a schema, nested ones too, and stops where there are too many."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._fields = 0

    def add(self, count: int) -> None:
        """Count some more."""
        self._fields += count
        if self._fields > SPARK_FIELDS_MAX:
            raise OptionsError(
                f"schema: {self._label} has more than {SPARK_FIELDS_MAX} fields, nested ones too"
            )


def list_of(kind: pa.DataType) -> pa.DataType:
    """Return an array type as Spark names its parts."""
    return pa.list_(pa.field("element", kind))


def json_text(value: object) -> str:
    """Return any value as JSON; bytes are base64."""
    return msgspec.json.encode(value).decode()


def name_columns(types: Mapping[str, pa.DataType]) -> list[Field]:
    """Give each field a column; a name that is taken gets underscores until it is free.

    Spark does not tell upper from lower case, so neither is done here.
    """
    taken = {name.casefold() for name in TAKEN}
    fields: list[Field] = []
    for name, kind in types.items():
        column = name or "_"
        while column.casefold() in taken:
            column += "_"
        taken.add(column.casefold())
        fields.append(Field(name=name, column=column, type=kind))
    return fields


def merge(topics: Mapping[str, Sequence[Field]]) -> dict[str, pa.DataType]:
    """Return the columns of several topics together: of one name they are one column.

    Its type must be the same everywhere, but for numbers, of which the wider one is taken.
    """
    columns: dict[str, tuple[str, str, pa.DataType]] = {}
    for topic, fields in topics.items():
        for field in fields:
            known = columns.setdefault(field.column.casefold(), (field.column, topic, field.type))
            kind = wider(known[2], field.type)
            if kind is None or known[0] != field.column:
                raise OptionsError(
                    f"schema: column {known[0]} is {known[2]} by the schema of topic {known[1]},"
                    f" and {field.column} is {field.type} by that of {topic}; read them apart"
                )
            columns[field.column.casefold()] = (known[0], known[1], kind)
    return {name: kind for name, _, kind in columns.values()}


_WIDER: Final = {
    frozenset({pa.int32(), pa.int64()}): pa.int64(),
    frozenset({pa.float32(), pa.float64()}): pa.float64(),
    frozenset({pa.int32(), pa.float64()}): pa.float64(),
}


def wider(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the type that holds values of both, or None."""
    return first if first == second else _WIDER.get(frozenset({first, second}))


def nullable_struct(types: Iterable[tuple[str, pa.DataType]]) -> pa.DataType:
    """Return a struct of fields that may be null."""
    return pa.struct([pa.field(name, kind) for name, kind in types])
