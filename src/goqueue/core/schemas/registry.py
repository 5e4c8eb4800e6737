"""The schema registry: subjects, versions, ids, and what may follow what.

Shape: decider. The verbs only decide, ``apply`` only changes. A schema has one id over all
subjects; two texts that say the same are one schema.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from goqueue.base.errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    NotSoftDeletedError,
    OverloadedError,
    RegistryReadOnlyError,
    SchemaNotFoundError,
    SchemaReferencedError,
    SubjectNotFoundError,
    VersionNotFoundError,
)
from goqueue.base.ids import SchemaId, SchemaVersion, SubjectName
from goqueue.base.limits import (
    SCHEMA_REFERENCES_MAX,
    SCHEMAS_BYTES_MAX,
    SUBJECT_VERSIONS_MAX,
    SUBJECTS_MAX,
)
from goqueue.base.names import subject_name
from goqueue.core.decision import Decision
from goqueue.core.schemas.compatibility import Compatibility, conflicts
from goqueue.core.schemas.definition import Definition
from goqueue.core.schemas.definitions import Definitions
from goqueue.core.schemas.events import (
    Configured,
    Defined,
    Event,
    IdTaken,
    Locked,
    SubjectEvent,
    SubjectPurged,
    SubjectRestored,
    Undefined,
    VersionAdded,
    VersionDeleted,
    VersionPurged,
)
from goqueue.core.schemas.library import Library
from goqueue.core.schemas.schema import Resolved, Schema, Stored
from goqueue.core.schemas.subject import Subject

CONFLICTS_TOLD_MAX: Final = 20


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a schema is: its version in a subject and its id."""

    id: SchemaId
    version: SchemaVersion


class Registry:
    """Decides about schemas and remembers them."""

    def __init__(self, definitions: Definitions | None = None) -> None:
        self.definitions = definitions or Definitions()
        self.library = Library()
        self.compatibility = Compatibility.BACKWARD
        self.is_read_only = False
        self._subjects: dict[SubjectName, Subject] = {}
        self._last_id = SchemaId(0)

    def __repr__(self) -> str:
        return f"<Registry of {len(self._subjects)} subjects, {len(self.library)} schemas>"

    # Looking.

    def subjects(self, *, with_deleted: bool = False) -> list[Subject]:
        """Return the subjects by name."""
        listed = (self._subjects[name] for name in sorted(self._subjects))
        return [one for one in listed if len(one) and (with_deleted or not one.is_hidden)]

    def subject(self, name: str, *, with_deleted: bool = False) -> Subject:
        """Return a subject or raise."""
        found = self._subjects.get(SubjectName(name))
        if found is None or not len(found) or (found.is_hidden and not with_deleted):
            raise SubjectNotFoundError("subject not found")
        return found

    def find(self, name: str) -> Subject | None:
        """Return a subject that has a version, or None."""
        found = self._subjects.get(SubjectName(name))
        return None if found is None or found.is_hidden else found

    def get(self, name: str, version: int | None, *, with_deleted: bool = False) -> Stored:
        """Return one version, or the latest; raise if there is none."""
        subject = self.subject(name, with_deleted=with_deleted)
        if version is None:
            listed = subject.all if with_deleted else subject.live
            chosen = listed[-1]
        else:
            chosen = SchemaVersion(version)
        schema_id = subject.id_of(chosen, with_deleted=with_deleted)
        return self._stored(subject, chosen, schema_id)

    def by_id(self, schema_id: int) -> Stored:
        """Return a schema by its id, with the first version that is it."""
        self.library.get(schema_id)
        found = self.places(schema_id, with_deleted=True)
        if not found:
            raise SchemaNotFoundError(f"schema {schema_id} not found")
        shown = [one for one in found if not one.is_deleted]
        return (shown or found)[0]

    def places(self, schema_id: int, *, with_deleted: bool = False) -> list[Stored]:
        """Return every version that is this schema, by subject."""
        self.library.get(schema_id)
        wanted = SchemaId(schema_id)
        return [
            self._stored(subject, version, wanted)
            for subject in self.subjects(with_deleted=True)
            for version in subject.versions_of(wanted, with_deleted=with_deleted)
        ]

    def lookup(self, name: str, schema: Schema, *, with_deleted: bool = False) -> Stored:
        """Return the version of a subject that says the same as a schema, or raise."""
        subject = self.subject(name, with_deleted=with_deleted)
        known = self.library.find(self.define(schema).fingerprint)
        versions = []
        if known is not None:
            versions = subject.versions_of(known, with_deleted=with_deleted)
        if known is None or not versions:
            raise SchemaNotFoundError("schema not found")
        return self._stored(subject, versions[-1], known)

    def referrers(self, name: str, version: int) -> list[SchemaId]:
        """Return the ids of the schemas that refer to a version."""
        subject = self.subject(name, with_deleted=True)
        subject.id_of(SchemaVersion(version), with_deleted=True)
        return sorted(self._referrers(subject.name, [SchemaVersion(version)]))

    def compatibility_of(self, name: str) -> Compatibility:
        """Return the mode a subject works by, its own or that of the registry."""
        subject = self._subjects.get(SubjectName(name))
        own = subject.compatibility if subject is not None else None
        return own or self.compatibility

    def own_compatibility(self, name: str) -> Compatibility | None:
        """Return the mode set for a subject itself."""
        subject = self._subjects.get(SubjectName(name))
        return subject.compatibility if subject is not None else None

    def is_closed(self, name: str) -> bool:
        """Return True if a subject takes no changes."""
        subject = self._subjects.get(SubjectName(name))
        own = subject.is_read_only if subject is not None else None
        return self.is_read_only if own is None else own

    def own_lock(self, name: str) -> bool | None:
        """Return whether a subject itself was closed or opened."""
        subject = self._subjects.get(SubjectName(name))
        return subject.is_read_only if subject is not None else None

    def define(self, schema: Schema) -> Definition:
        """Understand a schema, or raise."""
        return self.definitions.of(schema, self._resolve(schema))

    def definition(self, schema_id: SchemaId) -> Definition:
        """Return a registered schema, understood."""
        return self.define(self.library.get(schema_id))

    # Changing.

    def register(self, name: str, schema: Schema) -> Decision[Event, Place]:
        """Add a schema to a subject; one that is there already is only found."""
        checked = subject_name(name)
        definition = self.define(schema)
        known = self.library.find(definition.fingerprint)
        subject = self._subjects.get(checked) or Subject(checked)
        if known is not None:
            versions = subject.versions_of(known, with_deleted=False)
            if versions:
                return Decision((), Place(id=known, version=versions[-1]))
        self._check_open(checked)
        self._check_room(subject, schema, is_new=known is None)
        self._check_fit(subject, definition)
        schema_id = known if known is not None else SchemaId(self._last_id + 1)
        events: list[Event] = []
        if known is None:
            events.append(IdTaken(schema_id))
            events.append(Defined(schema_id, schema, definition.fingerprint))
        events.append(VersionAdded(checked, subject.next_version, schema_id))
        return Decision(tuple(events), Place(id=schema_id, version=subject.next_version))

    def check(self, name: str, version: int | None, schema: Schema) -> list[str]:
        """Return why a schema may not follow one version of a subject, in the subject's mode."""
        subject = self.subject(name)
        definition = self.define(schema)
        chosen = subject.live[-1] if version is None else SchemaVersion(version)
        old = self.definition(subject.id_of(chosen))
        return conflicts(self.compatibility_of(name), definition, [(chosen, old)])

    def check_all(self, name: str, schema: Schema) -> list[str]:
        """Return why a schema may not be the next version of a subject."""
        definition = self.define(schema)
        return self._conflicts(self.subject(name), definition)

    def delete_version(
        self, name: str, version: int | None, *, is_permanent: bool = False
    ) -> Decision[Event, SchemaVersion]:
        """Hide a version, or remove a hidden one for good."""
        subject = self.subject(name, with_deleted=is_permanent)
        self._check_open(subject.name)
        listed = subject.all if is_permanent else subject.live
        chosen = listed[-1] if version is None else SchemaVersion(version)
        subject.id_of(chosen, with_deleted=is_permanent)
        return Decision(tuple(self._remove(subject, [chosen], is_permanent=is_permanent)), chosen)

    def delete_subject(
        self, name: str, *, is_permanent: bool = False
    ) -> Decision[Event, list[SchemaVersion]]:
        """Hide every version of a subject, or remove a hidden subject for good."""
        subject = self.subject(name, with_deleted=is_permanent)
        self._check_open(subject.name)
        versions = subject.all if is_permanent else subject.live
        events = self._remove(subject, versions, is_permanent=is_permanent)
        return Decision(tuple(events), versions)

    def configure(
        self, name: str | None, compatibility: Compatibility | None
    ) -> Decision[Event, None]:
        """Set the mode of a subject or, without one, of the registry; None unsets it."""
        if name is None:
            return Decision((Configured(None, compatibility),), None)
        return Decision((Configured(self._known_or_new(name), compatibility),), None)

    def lock(self, name: str | None, *, is_read_only: bool | None) -> Decision[Event, None]:
        """Close a subject, or all of them, for changes, or open it again."""
        if name is None:
            return Decision((Locked(None, is_read_only),), None)
        return Decision((Locked(self._known_or_new(name), is_read_only),), None)

    def apply(self, event: Event) -> None:
        """Change."""
        match event:
            case IdTaken(id=schema_id):
                self._last_id = max(self._last_id, schema_id)
            case Configured(subject=None, compatibility=compatibility):
                self.compatibility = compatibility or Compatibility.BACKWARD
            case Locked(subject=None, is_read_only=is_read_only):
                self.is_read_only = bool(is_read_only)
            case Defined(id=schema_id):
                self._last_id = max(self._last_id, schema_id)
                self.library.apply(event)
            case Undefined():
                self.library.apply(event)
            case (
                VersionAdded()
                | VersionDeleted()
                | VersionPurged()
                | SubjectPurged()
                | SubjectRestored()
                | Configured()
                | Locked()
            ):
                self._apply_to_subject(event)

    def _apply_to_subject(self, event: SubjectEvent) -> None:
        assert event.subject is not None, "what concerns all subjects is applied elsewhere"
        subject = self._subjects.setdefault(event.subject, Subject(event.subject))
        before = [schema_id for _, schema_id in subject]
        subject.apply(event)
        for schema_id in before:
            self.library.count(schema_id, -1)
        for _, schema_id in subject:
            self.library.count(schema_id, 1)
        if isinstance(event, SubjectPurged):
            del self._subjects[event.subject]

    # Snapshots, one for each machine of the log.

    def root_snapshot(self) -> list[Event]:
        """Return the events that rebuild what belongs to no subject."""
        return [
            IdTaken(self._last_id),
            Configured(None, self.compatibility),
            Locked(None, self.is_read_only),
        ]

    def subject_snapshot(self, name: SubjectName) -> list[Event]:
        """Return the events that rebuild one subject."""
        subject = self._subjects.get(name)
        return [] if subject is None else [subject.snapshot()]

    def unused(self) -> list[SchemaId]:
        """Return schemas that no version is: what a crash left of a registration."""
        return [schema_id for schema_id in self.library if not self.library.uses(schema_id)]

    # Rules.

    def _known_or_new(self, name: str) -> SubjectName:
        checked = subject_name(name)
        if checked not in self._subjects and len(self._subjects) >= SUBJECTS_MAX:
            raise OverloadedError(f"there are {SUBJECTS_MAX} subjects; delete one first")
        return checked

    def _check_open(self, name: SubjectName) -> None:
        if self.is_closed(name):
            raise RegistryReadOnlyError(f"subject {name} is in read-only mode")

    def _check_room(self, subject: Subject, schema: Schema, *, is_new: bool) -> None:
        self._known_or_new(subject.name)
        if len(subject) >= SUBJECT_VERSIONS_MAX:
            raise OverloadedError(
                f"subject {subject.name} has {SUBJECT_VERSIONS_MAX} versions; delete some for good"
            )
        if is_new and self.library.size_bytes + len(schema.text) > SCHEMAS_BYTES_MAX:
            raise OverloadedError(f"the schemas take {SCHEMAS_BYTES_MAX} bytes; delete some")

    def _check_fit(self, subject: Subject, definition: Definition) -> None:
        found = self._conflicts(subject, definition)
        if found:
            raise IncompatibleSchemaError(f"schema incompatible: {'; '.join(found)}")

    def _conflicts(self, subject: Subject, definition: Definition) -> list[str]:
        mode = self.compatibility_of(subject.name)
        if mode is Compatibility.NONE:
            return []
        versions = subject.live if mode.value.endswith("_TRANSITIVE") else subject.live[-1:]
        older = [(version, self.definition(subject.id_of(version))) for version in versions]
        return conflicts(mode, definition, older)[:CONFLICTS_TOLD_MAX]

    def _remove(
        self, subject: Subject, versions: list[SchemaVersion], *, is_permanent: bool
    ) -> Iterator[Event]:
        used = self._referrers(subject.name, versions)
        if used:
            raise SchemaReferencedError(
                f"subject {subject.name} is referred to by schemas {sorted(used)}"
            )
        if not is_permanent:
            return iter([VersionDeleted(subject.name, version) for version in versions])
        for version in versions:
            if not subject.is_deleted(version):
                raise NotSoftDeletedError(
                    f"subject {subject.name} version {version} was not deleted first before being"
                    " permanently deleted"
                )
        return iter(self._purge(subject, versions))

    def _purge(self, subject: Subject, versions: list[SchemaVersion]) -> Iterable[Event]:
        if len(versions) == len(subject):
            yield SubjectPurged(subject.name)
        else:
            for version in versions:
                yield VersionPurged(subject.name, version)
        gone = [subject.id_of(version, with_deleted=True) for version in versions]
        for schema_id in dict.fromkeys(gone):
            if self.library.uses(schema_id) == gone.count(schema_id):
                yield Undefined(schema_id)

    def _referrers(self, name: SubjectName, versions: list[SchemaVersion]) -> set[SchemaId]:
        return {
            schema_id
            for schema_id in self.library
            for reference in self.library.get(schema_id).references
            if reference.subject == name
            and reference.version in versions
            # A schema that lives on only in hidden versions of the subject itself holds nothing.
            and self.library.uses(schema_id)
        }

    def _resolve(self, schema: Schema) -> Resolved:
        found: dict[str, Schema] = {}
        self._collect(schema, found, seen=set())
        return tuple(found.items())

    def _collect(self, schema: Schema, found: dict[str, Schema], *, seen: set[str]) -> None:
        """Add what a schema refers to; what it needs itself first."""
        for reference in schema.references:
            if reference.name in seen:
                continue
            seen.add(reference.name)
            if len(seen) > SCHEMA_REFERENCES_MAX:
                raise InvalidSchemaError(
                    f"invalid schema: more than {SCHEMA_REFERENCES_MAX} schemas are referred to"
                )
            target = self._target(reference.subject, reference.version)
            self._collect(target, found, seen=seen)
            found[reference.name] = target

    def _target(self, name: SubjectName, version: SchemaVersion) -> Schema:
        subject = self._subjects.get(name) or Subject(name)
        try:
            return self.library.get(subject.id_of(version, with_deleted=True))
        except (VersionNotFoundError, SchemaNotFoundError) as error:
            raise InvalidSchemaError(f"invalid schema: reference: {error.message}") from error

    def _stored(self, subject: Subject, version: SchemaVersion, schema_id: SchemaId) -> Stored:
        return Stored(
            subject=subject.name,
            version=version,
            id=schema_id,
            schema=self.library.get(schema_id),
            is_deleted=subject.is_deleted(version),
        )
