"""Schemas made ready to read values, each once in a process."""

from functools import lru_cache
from typing import Final

import pyarrow as pa

from goqueue.core.schemas.json_definition import JsonDefinition
from goqueue.core.schemas.schema import Resolved, Schema, SchemaType
from goqueue.spark.connector.typed.avro_decoder import AvroReading
from goqueue.spark.connector.typed.fields import Field, Growth, name_columns
from goqueue.spark.connector.typed.json_fields import json_kinds
from goqueue.spark.connector.typed.proto_decoder import ProtoReading
from goqueue.spark.connector.typed.subjects import Registered

READINGS_MAX: Final = 200
"""Schemas a process keeps ready."""


class JsonReading:
    """Knows the fields of a JSON schema."""

    def __init__(self, schema: Schema, resolved: Resolved, *, label: str) -> None:
        self._definition = JsonDefinition(schema, resolved)
        self.kinds = json_kinds(self._definition, Growth(label), label=label)

    def __repr__(self) -> str:
        return f"<JsonReading of {self._definition!r}>"


Reading = JsonReading | AvroReading | ProtoReading


@lru_cache(READINGS_MAX)
def reading_of(registered: Registered) -> Reading:
    """Return what reads values of a schema, or raise saying why it has no columns."""
    given = (registered.schema, registered.resolved)
    match registered.schema.type:
        case SchemaType.JSON:
            return JsonReading(*given, label=registered.label)
        case SchemaType.AVRO:
            return AvroReading(*given, label=registered.label)
        case SchemaType.PROTOBUF:
            return ProtoReading(*given, label=registered.label)


def fields_of(registered: Registered) -> list[Field]:
    """Return the fields of a schema with their columns."""
    types: dict[str, pa.DataType] = {
        name: kind.type for name, kind in reading_of(registered).kinds.items()
    }
    return name_columns(types)
