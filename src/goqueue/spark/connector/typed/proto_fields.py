"""Columns of a Protobuf message, and what takes their values out of one.

Shape: calculator. A field that knows whether it was set is null where it was not; one that does
not has its default, as everywhere in Protobuf.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from goqueue.base.limits import SPARK_DEPTH_MAX
from goqueue.spark.connector.typed.fields import TEXT, Growth, list_of, nullable_struct

Take = Callable[[Any], Any]
"""Takes a value out of a message, or turns one into what Arrow takes."""


class ProtoKind(NamedTuple):
    """What a field is as a column."""

    type: pa.DataType
    take: Take


class _Value(NamedTuple):
    type: pa.DataType
    convert: Take | None = None


_SCALARS: Final = {
    FieldDescriptor.TYPE_DOUBLE: _Value(pa.float64()),
    FieldDescriptor.TYPE_FLOAT: _Value(pa.float32()),
    FieldDescriptor.TYPE_INT64: _Value(pa.int64()),
    FieldDescriptor.TYPE_SINT64: _Value(pa.int64()),
    FieldDescriptor.TYPE_SFIXED64: _Value(pa.int64()),
    FieldDescriptor.TYPE_UINT64: _Value(pa.decimal128(20, 0)),
    FieldDescriptor.TYPE_FIXED64: _Value(pa.decimal128(20, 0)),
    FieldDescriptor.TYPE_INT32: _Value(pa.int32()),
    FieldDescriptor.TYPE_SINT32: _Value(pa.int32()),
    FieldDescriptor.TYPE_SFIXED32: _Value(pa.int32()),
    FieldDescriptor.TYPE_UINT32: _Value(pa.int64()),
    FieldDescriptor.TYPE_FIXED32: _Value(pa.int64()),
    FieldDescriptor.TYPE_BOOL: _Value(pa.bool_()),
    FieldDescriptor.TYPE_STRING: _Value(TEXT),
    FieldDescriptor.TYPE_BYTES: _Value(pa.binary()),
}
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_OPEN: Final = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}


def _microseconds(message: Any) -> int:  # noqa: ANN401 - seconds and nanos
    return int(message.seconds * 1_000_000 + message.nanos // 1_000)


def _text(message: Any) -> str:  # noqa: ANN401 - any message
    return str(json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True))


_TIMES: Final = {
    "google.protobuf.Timestamp": _Value(pa.timestamp("us", "UTC"), _microseconds),
    "google.protobuf.Duration": _Value(pa.duration("us"), _microseconds),
}
_ANY: Final = _Value(TEXT, _text)


class ProtoWalk:
    """Walks a message; ``above`` are the messages on the way, ``depth`` their number."""

    def __init__(self, growth: Growth) -> None:
        self._growth = growth

    def fields(
        self, message: Descriptor, *, above: frozenset[str] = frozenset(), depth: int = 0
    ) -> dict[str, ProtoKind]:
        """Return the fields of a message."""
        self._growth.add(len(message.fields))
        above |= {message.full_name}
        return {field.name: self._kind(field, above, depth) for field in message.fields}

    def _kind(self, field: FieldDescriptor, above: frozenset[str], depth: int) -> ProtoKind:
        name = field.name
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            return self._map(name, message, above, depth)
        value = self._value(field, above, depth)
        convert = value.convert
        get = attrgetter(name)
        if field.is_repeated:
            each: Take = list if convert is None else lambda many: [convert(one) for one in many]
            return ProtoKind(list_of(value.type), lambda message: each(get(message)))
        read: Take = get if convert is None else lambda message: convert(get(message))
        if not field.has_presence:
            return ProtoKind(value.type, read)
        return ProtoKind(
            value.type, lambda message: read(message) if message.HasField(name) else None
        )

    def _map(self, name: str, entry: Descriptor, above: frozenset[str], depth: int) -> ProtoKind:
        key = self._value(entry.fields_by_name["key"], above, depth)
        value = self._value(entry.fields_by_name["value"], above, depth)
        convert = value.convert or (lambda one: one)
        return ProtoKind(
            pa.map_(key.type, value.type),
            lambda message: [(k, convert(v)) for k, v in getattr(message, name).items()],
        )

    def _value(self, field: FieldDescriptor, above: frozenset[str], depth: int) -> _Value:
        if field.enum_type is not None:
            names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
            return _Value(TEXT, lambda number: names.get(number) or str(number))
        message = field.message_type
        return _SCALARS[field.type] if message is None else self._message(message, above, depth)

    def _message(self, message: Descriptor, above: frozenset[str], depth: int) -> _Value:
        name = message.full_name
        if name in _TIMES:
            return _TIMES[name]
        if name in _WRAPPERS:
            return _Value(_SCALARS[message.fields[0].type].type, attrgetter("value"))
        if name in _OPEN or name in above or depth >= SPARK_DEPTH_MAX or not message.fields:
            return _ANY
        kinds = self.fields(message, above=above, depth=depth + 1)
        takes = [(one, kind.take) for one, kind in kinds.items()]
        return _Value(
            nullable_struct((one, kind.type) for one, kind in kinds.items()),
            lambda value: {one: take(value) for one, take in takes},
        )
