"""Avro values as columns.

A value that names its schema is read by that one, and what it has of the columns is taken; plain
values are read by the latest.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from fastavro import parse_schema, schemaless_reader

from goqueue.core.schemas.avro_definition import AvroDefinition
from goqueue.core.schemas.schema import Resolved, Schema
from goqueue.spark.connector.typed.avro_fields import (
    avro_kinds,
    in_record,
    is_decimal,
    is_recursive,
)
from goqueue.spark.connector.typed.decoded import (
    FAULTS,
    Decoded,
    Record,
    UnreadableError,
    to_columns,
    told,
)
from goqueue.spark.connector.typed.fields import Field, Growth
from goqueue.spark.connector.typed.frames import FRAME_BYTES, schema_id

_FAULTS = (*FAULTS, EOFError, LookupError, RecursionError, AttributeError, MemoryError)


class AvroReading:
    """Reads the records of one schema."""

    def __init__(self, schema: Schema, resolved: Resolved, *, label: str) -> None:
        self._definition = AvroDefinition(schema, resolved)
        self.kinds = avro_kinds(self._definition, Growth(label), label=label)
        self._is_recursive = is_recursive(self._definition)
        names: dict[str, Any] = {}
        for _, other in resolved:
            parse_schema(_plain(_read(other.text)), named_schemas=names, _write_hint=False)
        self._schema = parse_schema(_plain(_read(schema.text)), named_schemas=names)
        converts = {name: kind.convert for name, kind in self.kinds.items() if kind.convert}
        self._convert = in_record(converts) if converts else None

    def __repr__(self) -> str:
        return f"<AvroReading of {self._definition!r}>"

    def record(self, payload: bytes) -> dict[str, Any]:
        """Return a record, or raise UnreadableError."""
        # What reads records has no bound for their depth.
        if self._is_recursive:
            self._refuse(payload)
        stream = io.BytesIO(payload)
        try:
            record: Any = schemaless_reader(stream, self._schema, None)
            left = len(payload) - stream.tell()
            if left:
                raise UnreadableError(f"{left} bytes are left over")
            return record if self._convert is None else self._convert(record)  # type: ignore[no-any-return]
        except _FAULTS as error:
            self._refuse(payload)
            raise UnreadableError(told(error)) from error

    def _refuse(self, payload: bytes) -> None:
        misfit = self._definition.misfit(payload)
        if misfit is not None:
            raise UnreadableError(str(misfit))


class AvroDecoder:
    """Decodes the values of one topic."""

    def __init__(
        self,
        fields: Sequence[Field],
        latest: AvroReading,
        *,
        latest_id: int,
        find: Callable[[int], AvroReading],
    ) -> None:
        self._fields = fields
        self._latest = latest
        self._latest_id = latest_id
        self._find = find

    def __repr__(self) -> str:
        return f"<AvroDecoder of {len(self._fields)} columns by {self._latest!r}>"

    def decode(self, values: pa.Array) -> Decoded:
        """Decode many values."""
        records: list[Record] = []
        readings: list[AvroReading] = []
        reasons: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            record, reading = None, self._latest
            if value is not None:
                try:
                    record, reading = self._record(value)
                except UnreadableError as error:
                    reasons[row] = str(error)
            records.append(record)
            readings.append(reading)
        return Decoded(self._columns(records, readings, reasons), reasons)

    def _record(self, value: bytes) -> tuple[Record, AvroReading]:
        named = schema_id(value)
        if named is None:
            return self._latest.record(value), self._latest
        try:
            reading = self._latest if named == self._latest_id else self._find(named)
            return reading.record(value[FRAME_BYTES:]), reading
        except UnreadableError as error:
            try:
                # Plain bytes may begin with a zero, too.
                return self._latest.record(value), self._latest
            except UnreadableError:
                raise error from None

    def _columns(
        self, records: list[Record], readings: list[AvroReading], reasons: dict[int, str]
    ) -> list[pa.Array]:
        """Return the columns; records of one schema are turned into columns together."""
        kinds = dict.fromkeys(readings)
        if len(kinds) <= 1:
            return self._of_one(records, next(iter(kinds), self._latest), reasons)
        order: list[int] = []
        parts: list[list[pa.Array]] = []
        for reading in kinds:
            rows = [row for row, one in enumerate(readings) if one is reading]
            found: dict[int, str] = {}
            parts.append(self._of_one([records[row] for row in rows], reading, found))
            reasons.update({rows[place]: reason for place, reason in found.items()})
            order += rows
        back = pa.array([place for _, place in sorted(zip(order, range(len(order)), strict=True))])
        return [pa.concat_arrays(part).take(back) for part in zip(*parts, strict=True)]

    def _of_one(
        self, records: list[Record], reading: AvroReading, reasons: dict[int, str]
    ) -> list[pa.Array]:
        stored = [
            reading.kinds[field.name].stored if field.name in reading.kinds else field.type
            for field in self._fields
        ]
        return to_columns(records, self._fields, stored, reasons)


def _read(text: str) -> Any:  # noqa: ANN401 - as written
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text.strip()


def _plain(node: Any) -> Any:  # noqa: ANN401 - as written
    """Leave out what numbers mean, but for decimals."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    is_kept = is_decimal(node)
    return {
        key: value if key == "default" else _plain(value)
        for key, value in node.items()
        if key != "logicalType" or is_kept
    }
