"""Schemas that were understood, the recent ones remembered.

Shape: calculator. Understanding a schema is pure, so remembering it changes nothing but the time.
"""

from collections import OrderedDict
from typing import Final

from goqueue.core.schemas.definition import Definition
from goqueue.core.schemas.schema import Resolved, Schema, SchemaType

REMEMBERED_MAX: Final = 1_000
REMEMBERED_BYTES_MAX: Final = 64 * 1_024 * 1_024


class Definitions:
    """Definitions by what they were made from."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Schema, Resolved], Definition] = OrderedDict()
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<Definitions: {len(self)}>"

    def of(self, schema: Schema, resolved: Resolved) -> Definition:
        """Understand a schema, or raise InvalidSchemaError."""
        key = (schema, resolved)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        made = define(schema, resolved)
        self._known[key] = made
        self._size_bytes += len(schema.text)
        while len(self._known) > REMEMBERED_MAX or self._size_bytes > REMEMBERED_BYTES_MAX:
            (gone, _), _ = self._known.popitem(last=False)
            self._size_bytes -= len(gone.text)
        return made


def define(schema: Schema, resolved: Resolved) -> Definition:
    """Understand a schema, or raise InvalidSchemaError.

    Each language brings a library of its own: 6 MB that a broker without schemas does not need.
    """
    match schema.type:
        case SchemaType.JSON:
            from goqueue.core.schemas.json_definition import JsonDefinition  # noqa: PLC0415

            return JsonDefinition(schema, resolved)
        case SchemaType.AVRO:
            from goqueue.core.schemas.avro_definition import AvroDefinition  # noqa: PLC0415

            return AvroDefinition(schema, resolved)
        case SchemaType.PROTOBUF:
            from goqueue.core.schemas.proto_definition import ProtoDefinition  # noqa: PLC0415

            return ProtoDefinition(schema, resolved)
