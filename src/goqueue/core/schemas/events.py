"""What happens in the schema registry, as it is kept in ``__schemas``."""

import msgspec

from goqueue.base.ids import SchemaId, SchemaVersion, SubjectName
from goqueue.core.schemas.compatibility import Compatibility
from goqueue.core.schemas.schema import Schema


class _Fact(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of the events: short on the disk, told apart by their names."""


class IdTaken(_Fact, frozen=True, tag="taken"):
    """An id was given to a schema and is never given again."""

    id: SchemaId


class Defined(_Fact, frozen=True, tag="defined"):
    """A schema got its id."""

    id: SchemaId
    schema: Schema
    fingerprint: bytes


class Undefined(_Fact, frozen=True, tag="undefined"):
    """The last version with a schema is gone, and its text with it."""

    id: SchemaId


class VersionAdded(_Fact, frozen=True, tag="added"):
    """A subject has a new version."""

    subject: SubjectName
    version: SchemaVersion
    id: SchemaId


class VersionDeleted(_Fact, frozen=True, tag="deleted"):
    """A version is hidden; what was written with it can still be read."""

    subject: SubjectName
    version: SchemaVersion


class VersionPurged(_Fact, frozen=True, tag="purged"):
    """A version is gone for good."""

    subject: SubjectName
    version: SchemaVersion


class SubjectPurged(_Fact, frozen=True, tag="subject_purged"):
    """A subject is gone for good."""

    subject: SubjectName


class Configured(_Fact, frozen=True, tag="configured"):
    """A compatibility mode was set; None means that of the registry again."""

    subject: SubjectName | None
    compatibility: Compatibility | None


class Locked(_Fact, frozen=True, tag="locked"):
    """A subject, or all of them, was opened for changes or closed."""

    subject: SubjectName | None
    is_read_only: bool | None


class SubjectRestored(_Fact, frozen=True, tag="restored"):
    """A whole subject, for a snapshot: versions with their ids and whether they are hidden."""

    subject: SubjectName
    versions: list[tuple[SchemaVersion, SchemaId, bool]]
    next_version: SchemaVersion
    compatibility: Compatibility | None
    is_read_only: bool | None


RootEvent = IdTaken | Configured | Locked
SchemaEvent = Defined | Undefined
SubjectEvent = (
    VersionAdded
    | VersionDeleted
    | VersionPurged
    | SubjectPurged
    | Configured
    | Locked
    | SubjectRestored
)
Event = RootEvent | SchemaEvent | SubjectEvent
