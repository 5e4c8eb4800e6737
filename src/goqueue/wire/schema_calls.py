"""The headers of requests about schemas. Texts and values travel in the payload.

Structs travel as msgpack arrays: a field may be added at the end with a default, never removed.
"""

from typing import Annotated

import msgspec

from goqueue.base.limits import HTTP_MESSAGES_MAX, SCHEMA_REFERENCES_MAX
from goqueue.wire.calls import Call, Natural, Number, Text

MISFITS_MAX = 1_000
"""Most values one reply names that do not fit."""


class SchemaReference(Call, frozen=True):
    """A schema another one uses, and the name it uses it by."""

    name: Text
    subject: Text
    version: Number


References = Annotated[list[SchemaReference], msgspec.Meta(max_length=SCHEMA_REFERENCES_MAX)]


class RegisterSchema(Call, frozen=True):
    """Add a schema to a subject; its text is the payload."""

    subject: Text
    type: Text
    references: References = msgspec.field(default_factory=list)


class SchemaPlace(Call, frozen=True):
    """Where a schema is: its id, and its version in the subject."""

    id: int
    version: int


class DescribeSchema(Call, frozen=True):
    """Name a version of a subject (0 is the latest) or, without a subject, a schema by its id."""

    subject: Text | None
    version: Number = 0
    id: Natural = 0


class SchemaState(Call, frozen=True):
    """A schema; its text is the payload."""

    subject: str
    version: int
    id: int
    type: str
    references: list[SchemaReference] = msgspec.field(default_factory=list)


class ListSubjects(Call, frozen=True):
    """Ask for the subjects, or for one of them."""

    subject: Text | None = None
    with_deleted: bool = False


class SubjectState(Call, frozen=True):
    """A subject: its versions, the id of the latest, and the mode it works by."""

    name: str
    versions: list[int]
    latest_id: int
    type: str
    compatibility: str


class SubjectList(Call, frozen=True):
    """Subjects by name."""

    subjects: list[SubjectState]


class CheckSchema(Call, frozen=True):
    """Ask whether a schema could be the next version; with a version, only about that one."""

    subject: Text
    type: Text
    references: References = msgspec.field(default_factory=list)
    version: Number = 0


class SchemaVerdict(Call, frozen=True):
    """Why a schema is not compatible; nothing if it is."""

    messages: list[str]


class DeleteSchema(Call, frozen=True):
    """Hide a version, or a subject with all of them; ``permanent`` removes what is hidden."""

    subject: Text
    version: Number = 0
    permanent: bool = False


class SchemaVersions(Call, frozen=True):
    """Versions of a subject."""

    versions: list[int]


class ConfigureSchemas(Call, frozen=True):
    """Ask for the mode of a subject or of the registry and, with one, set it."""

    subject: Text | None = None
    compatibility: Text | None = None


class CompatibilityState(Call, frozen=True):
    """The mode a subject or the registry works by."""

    compatibility: str


class ValidateValues(Call, frozen=True):
    """Ask whether values fit a version; they follow one another in the payload."""

    subject: Text
    sizes: Annotated[list[Natural], msgspec.Meta(max_length=HTTP_MESSAGES_MAX)]
    version: Number = 0


class Misfits(Call, frozen=True):
    """Values that do not fit: their place among those asked about, the path and the reason."""

    misfits: list[tuple[int, str, str]]
