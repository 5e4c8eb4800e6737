"""A schema as it is registered: its type, its text and the schemas it refers to.

Shape: codec.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from goqueue.base.errors import InvalidRequestError, InvalidSchemaError
from goqueue.base.ids import SchemaId, SchemaVersion, SubjectName
from goqueue.base.limits import SCHEMA_BYTES_MAX, SCHEMA_REFERENCES_MAX


class SchemaType(StrEnum):
    """The languages schemas are written in."""

    JSON = "JSON"
    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A schema another one uses, and the name it is used by."""

    name: str
    subject: SubjectName
    version: SchemaVersion


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """A text in one of the languages."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A schema as one version of a subject."""

    subject: SubjectName
    version: SchemaVersion
    id: SchemaId
    schema: Schema
    is_deleted: bool = False


Resolved = tuple[tuple[str, Schema], ...]
"""What a schema refers to, through others too, by name; each stands behind what it needs."""

_TYPES: Final = {kind.value: kind for kind in SchemaType}


def read_schema(text: object, kind: str | None, references: Iterable[Reference] = ()) -> Schema:
    """Return a schema from its text as it was sent, or raise."""
    if not isinstance(text, str) or not text:
        raise InvalidRequestError("schema is required")
    kind = kind or SchemaType.JSON.value
    found = _TYPES.get(kind.upper())
    if found is None:
        raise InvalidSchemaError(
            f"invalid schema: schemaType {kind[:40]!a} is none of {', '.join(_TYPES)}"
        )
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidSchemaError("invalid schema: it is not Unicode text") from error
    if size > SCHEMA_BYTES_MAX:
        raise InvalidSchemaError(f"invalid schema: {size} bytes; the limit is {SCHEMA_BYTES_MAX}")
    listed = tuple(references)
    if len(listed) > SCHEMA_REFERENCES_MAX:
        raise InvalidSchemaError(
            f"invalid schema: {len(listed)} references; the limit is {SCHEMA_REFERENCES_MAX}"
        )
    return Schema(type=found, text=text, references=listed)
