"""Avro: understood, compared and tried on messages.

Shape: calculator.
"""

from typing import Any

import msgspec
from fastavro.schema import SchemaParseException, parse_schema

from goqueue.base.errors import InvalidSchemaError
from goqueue.core.schemas.avro_compare import AvroComparison
from goqueue.core.schemas.avro_values import Walker
from goqueue.core.schemas.definition import Break, Definition, Misfit
from goqueue.core.schemas.json_document import measure
from goqueue.core.schemas.schema import Resolved, Schema

AvroNode = Any
"""A schema as ``fastavro`` reads it: text, list or object, names in full."""

_FAULTS = (SchemaParseException, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class AvroDefinition(Definition):
    """An Avro schema with what walks its messages."""

    def __init__(self, schema: Schema, resolved: Resolved) -> None:
        self.names: dict[str, AvroNode] = {}
        for _, other in resolved:
            _parse(_read(other.text), self.names)
        source = _read(schema.text)
        self.root = _parse(source, self.names)
        try:
            self._walker = Walker(self.root, self.names)
        except _FAULTS as error:
            raise InvalidSchemaError(f"invalid schema: {error}") from error
        super().__init__(
            schema,
            canonical=msgspec.json.encode(_plain(source), order="sorted"),
            record_name=self.root.get("name") if isinstance(self.root, dict) else None,
        )

    def breaks_reading(self, writer: Definition) -> list[Break]:
        """Return why data written with another schema cannot be read with this one."""
        assert isinstance(writer, AvroDefinition), "of the same language"
        comparison = AvroComparison(writer_names=writer.names, reader_names=self.names)
        return comparison.breaks(writer.root, self.root)

    def misfit(self, value: bytes) -> Misfit | None:
        """Return why the bytes are no record of this schema."""
        return self._walker.misfit(value)


def _read(text: str) -> AvroNode:
    try:
        source = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        # The bare name of a type is a schema, too.
        if text.strip().isalpha():
            return text.strip()
        raise InvalidSchemaError(f"invalid schema: it is not JSON: {error}") from error
    except RecursionError as error:
        raise InvalidSchemaError("invalid schema: nested too deeply") from error
    measure(source)
    return source


def _parse(source: AvroNode, names: dict[str, AvroNode]) -> AvroNode:
    try:
        return parse_schema(source, named_schemas=names, _write_hint=False)
    except _FAULTS as error:
        told = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidSchemaError(f"invalid schema: {told[:300]}") from error


def _plain(node: AvroNode) -> AvroNode:
    """Write ``{"type": "string"}`` as ``"string"``: they say the same."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node.keys() == {"type"} and isinstance(node["type"], str):
        return node["type"]
    return {key: value if key == "default" else _plain(value) for key, value in node.items()}
