"""Protobuf values as columns.

Fields are known by their numbers, so messages of every version are read with the latest one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from goqueue.core.schemas.proto_definition import ProtoDefinition, split_indexes
from goqueue.core.schemas.schema import Resolved, Schema
from goqueue.spark.connector.options import OptionsError
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
from goqueue.spark.connector.typed.proto_fields import ProtoWalk

_FIRST = (0,)


class ProtoReading:
    """Reads the first message of a file."""

    def __init__(self, schema: Schema, resolved: Resolved, *, label: str) -> None:
        self._definition = ProtoDefinition(schema, resolved)
        kind = self._definition.message_class(_FIRST)
        if kind is None or not kind.DESCRIPTOR.fields:
            raise OptionsError(
                f"schema: {label} has no message with fields, so there are no columns"
            )
        self._class = kind
        self.kinds = ProtoWalk(Growth(label)).fields(kind.DESCRIPTOR)

    def __repr__(self) -> str:
        return f"<ProtoReading of {self._definition!r}>"

    @property
    def name(self) -> str:
        """The name of the message within its package."""
        return str(self._class.DESCRIPTOR.name)

    def name_at(self, indexes: tuple[int, ...]) -> str | None:
        """Return the name of a message by its place in the file, as far as it could be ours."""
        kind = self._definition.message_class(indexes)
        return None if kind is None or len(indexes) > 1 else str(kind.DESCRIPTOR.name)

    def message(self, payload: bytes) -> Any:  # noqa: ANN401 - a class made at run time
        """Return a message, or raise UnreadableError."""
        message = self._class()
        try:
            message.ParseFromString(payload)
        except (DecodeError, ValueError) as error:
            raise UnreadableError(f"it is no {self.name}: {told(error)}") from error
        missing = message.FindInitializationErrors()
        if missing:
            raise UnreadableError(f"/{missing[0]}: a required field is missing")
        return message


class ProtoDecoder:
    """Decodes the values of one topic."""

    def __init__(
        self,
        fields: Sequence[Field],
        latest: ProtoReading,
        *,
        latest_id: int,
        find: Callable[[int], ProtoReading],
    ) -> None:
        self._fields = fields
        self._latest = latest
        self._latest_id = latest_id
        self._find = find
        self._stored = [latest.kinds[field.name].type for field in fields]
        self._takes = [(field.name, latest.kinds[field.name].take) for field in fields]

    def __repr__(self) -> str:
        return f"<ProtoDecoder of {len(self._fields)} columns by {self._latest!r}>"

    def decode(self, values: pa.Array) -> Decoded:
        """Decode many values."""
        records: list[Record] = []
        reasons: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            record: Record = None
            if value is not None:
                try:
                    message = self._message(value)
                    record = {name: take(message) for name, take in self._takes}
                except UnreadableError as error:
                    reasons[row] = str(error)
                except FAULTS as error:
                    reasons[row] = told(error)
            records.append(record)
        return Decoded(to_columns(records, self._fields, self._stored, reasons), reasons)

    def _message(self, value: bytes) -> Any:  # noqa: ANN401 - a class made at run time
        named = schema_id(value)
        if named is None:
            return self._latest.message(value)
        try:
            return self._framed(named, value[FRAME_BYTES:])
        except UnreadableError as error:
            try:
                # Plain bytes may begin with a zero, too.
                return self._latest.message(value)
            except UnreadableError:
                raise error from None

    def _framed(self, named: int, payload: bytes) -> Any:  # noqa: ANN401 - a class made at run time
        writer = self._latest if named == self._latest_id else self._find(named)
        indexes, start = split_indexes(payload)
        if indexes is None:
            raise UnreadableError("the message does not say which type it is")
        name = writer.name_at(indexes)
        if name != self._latest.name:
            raise UnreadableError(f"it is a {name or list(indexes)}, not a {self._latest.name}")
        return self._latest.message(payload[start:])
