"""The schema registry as JSON: our own routes, and those of Confluent's clients.

Shape: codec. Errors carry both shapes, so that either kind of client understands them.
"""

from http import HTTPStatus
from typing import Annotated, Final

import msgspec

from goqueue.base.errors import GoQueueError, InvalidCompatibilityError
from goqueue.base.ids import SchemaVersion, SubjectName
from goqueue.core.schemas.compatibility import Compatibility, read_compatibility
from goqueue.core.schemas.schema import Reference, Schema, SchemaType, Stored, read_schema
from goqueue.wire.http.errors import status_of

AVRO: Final = SchemaType.AVRO.value
JSON: Final = SchemaType.JSON.value
TYPES: Final = [kind.value for kind in SchemaType]

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class ReferenceText(msgspec.Struct, frozen=True, kw_only=True):
    """A schema another one uses, and the name it uses it by."""

    name: str
    subject: str
    version: int


class SchemaText(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A schema to be registered, looked up or compared."""

    schema: str | None = None
    schema_type: Annotated[
        str | None, msgspec.Meta(description="JSON, AVRO or PROTOBUF.", examples=["JSON"])
    ] = None
    references: list[ReferenceText] | None = None


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """Where a schema is now, or was already."""

    id: int
    version: int


class SchemaDetail(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str
    references: list[ReferenceText] = []


class SchemaFound(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The version of a subject that says the same as a schema."""

    subject: str
    version: int
    id: int
    schema: str | None = None
    schema_type: str | None = None
    references: list[ReferenceText] = []


class VersionDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """A version is gone."""

    deleted: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a schema may follow, and where it breaks."""

    is_compatible: bool
    messages: list[str] = []


class CompatibilityText(msgspec.Struct, frozen=True, kw_only=True):
    """A compatibility mode: NONE, BACKWARD, FORWARD, FULL, or one of them with _TRANSITIVE."""

    compatibility: str | None = None


class CompatibilityWanted(msgspec.Struct, frozen=True, kw_only=True):
    """A compatibility mode to be set; Confluent's clients call it by either name."""

    compatibility: Annotated[
        str | None,
        msgspec.Meta(
            description="NONE, BACKWARD, FORWARD, FULL, or one of them with _TRANSITIVE.",
            examples=["BACKWARD"],
        ),
    ] = None
    compatibility_level: Annotated[
        str | None, msgspec.Meta(description="Another name for `compatibility`.")
    ] = msgspec.field(default=None, name="compatibilityLevel")


class CompatibilityLevel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A compatibility mode, as Confluent's clients read it."""

    compatibility_level: str


class ModeText(msgspec.Struct, frozen=True, kw_only=True):
    """READWRITE or READONLY."""

    mode: str | None = None


class SubjectStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One subject in numbers."""

    subject: str
    version_count: int
    latest_version: int
    latest_schema_id: int
    compatibility: str
    validation_enabled: bool


class SchemaStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The registry in numbers."""

    subject_count: int
    total_schemas: int
    global_compatibility: str
    validation_enabled: bool
    cached_validators: int
    subjects: list[SubjectStats]


class SubjectVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a subject."""

    subject: str
    version: int


class SchemaErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused; ``error_code`` and ``message`` are for Confluent's clients."""

    error: str
    status: int
    code: str
    error_code: int
    message: str


ERROR_CODES: Final[dict[str, tuple[HTTPStatus, int]]] = {
    "subject_not_found": (HTTPStatus.NOT_FOUND, 40401),
    "version_not_found": (HTTPStatus.NOT_FOUND, 40402),
    "schema_not_found": (HTTPStatus.NOT_FOUND, 40403),
    "not_soft_deleted": (HTTPStatus.NOT_FOUND, 40407),
    "incompatible_schema": (HTTPStatus.CONFLICT, 409),
    "invalid_request": (HTTPStatus.UNPROCESSABLE_ENTITY, 42201),
    "invalid_name": (HTTPStatus.UNPROCESSABLE_ENTITY, 42208),
    "invalid_schema": (HTTPStatus.UNPROCESSABLE_ENTITY, 42201),
    "invalid_version": (HTTPStatus.UNPROCESSABLE_ENTITY, 42202),
    "invalid_compatibility": (HTTPStatus.UNPROCESSABLE_ENTITY, 42203),
    "registry_read_only": (HTTPStatus.UNPROCESSABLE_ENTITY, 42205),
    "schema_referenced": (HTTPStatus.UNPROCESSABLE_ENTITY, 42206),
}
"""Status and code of the errors that Confluent's clients know."""
SUBJECT_NOT_DELETED: Final = 40405
NO_OWN_COMPATIBILITY: Final = 40408
NO_OWN_MODE: Final = 40409
INVALID_MODE: Final = 42204


def error_of(error: GoQueueError, *, is_confluent: bool) -> SchemaErrorReply:
    """Return an error in both shapes, with the status of the routes it is told at."""
    own = status_of(error)
    status, code = ERROR_CODES.get(error.code, (own, own.value * 100 + 1))
    return SchemaErrorReply(
        error=error.message,
        status=(status if is_confluent else own).value,
        code=error.code,
        error_code=code,
        message=error.message,
    )


def schema_of(text: SchemaText, *, default: str) -> Schema:
    """Return the schema of a request, or raise."""
    references = [
        Reference(
            name=one.name, subject=SubjectName(one.subject), version=SchemaVersion(one.version)
        )
        for one in text.references or ()
    ]
    return read_schema(text.schema, text.schema_type or default, references)


def level_of(wanted: CompatibilityWanted) -> Compatibility:
    """Return a compatibility mode by either of its names."""
    if wanted.compatibility is None:
        return read_compatibility(wanted.compatibility_level)
    mode = read_compatibility(wanted.compatibility)
    other = wanted.compatibility_level
    if other is not None and read_compatibility(other) is not mode:
        raise InvalidCompatibilityError(
            "compatibility and compatibilityLevel are two names of one thing and differ here"
        )
    return mode


def references_of(schema: Schema) -> list[ReferenceText]:
    """Return what a schema refers to."""
    return [
        ReferenceText(name=one.name, subject=one.subject, version=one.version)
        for one in schema.references
    ]


def detail_of(stored: Stored, text: str) -> SchemaDetail:
    """Return a version with its text, or another form of it."""
    return SchemaDetail(
        subject=stored.subject,
        version=stored.version,
        id=stored.id,
        schema=text,
        schema_type=stored.schema.type.value,
        references=references_of(stored.schema),
    )
