"""The schema registry. Replies tell of durable schemas only."""

from collections.abc import Iterable

from goqueue.base.caller import Caller
from goqueue.base.deeds import Deed
from goqueue.base.errors import InvalidRequestError, InvalidSchemaError, SchemaNotFoundError
from goqueue.base.ids import SchemaId, SchemaVersion, SubjectName
from goqueue.base.names import is_internal
from goqueue.core.schemas.compatibility import Compatibility, read_compatibility
from goqueue.core.schemas.registry import Registry
from goqueue.core.schemas.schema import Reference, Schema, Stored, read_schema
from goqueue.core.schemas.strategy import VALUE_SUFFIX
from goqueue.core.schemas.subject import Subject
from goqueue.runtime.broker import Broker
from goqueue.service.gate import Gate
from goqueue.service.verb import Reply, RequestContext, caller_verb, verb
from goqueue.wire import schema_calls as said
from goqueue.wire.http.schemas import SchemaStats, SubjectStats

__all__ = ["Compatibility", "Schema", "Schemas", "Stored"]


class Schemas:
    """What can be asked about schemas."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._gate = gate
        self._schemas = broker.schemas

    @property
    def _registry(self) -> Registry:
        """The registry of now: one that is loaded again is another."""
        return self._schemas.registry

    # As the native protocol asks.

    @caller_verb(Deed.REGISTER_SCHEMA)
    async def register(
        self, caller: Caller, call: said.RegisterSchema, context: RequestContext
    ) -> said.SchemaPlace:
        """Add a schema to a subject, if it is compatible."""
        schema = _schema(call.type, call.references, context)
        self._check_references(caller, schema)
        place = await self._schemas.register(call.subject, schema)
        return said.SchemaPlace(place.id, place.version)

    @caller_verb(Deed.DESCRIBE_SCHEMA)
    async def describe(self, caller: Caller, call: said.DescribeSchema) -> Reply:
        """Return a version of a subject, or a schema by its id."""
        await self._schemas.settled()
        if call.subject is None:
            stored = self._found(caller, call.id)
        else:
            stored = self._registry.get(call.subject, call.version or None)
        references = [
            said.SchemaReference(one.name, one.subject, one.version)
            for one in stored.schema.references
        ]
        state = said.SchemaState(
            stored.subject, stored.version, stored.id, stored.schema.type.value, references
        )
        return Reply(state, [stored.schema.text.encode()])

    @caller_verb(Deed.LIST_SUBJECTS)
    async def list_all(self, caller: Caller, call: said.ListSubjects) -> said.SubjectList:
        """Return the subjects, or one of them."""
        await self._schemas.settled()
        if call.subject is not None:
            found = [self._registry.subject(call.subject, with_deleted=call.with_deleted)]
        else:
            found = self._subjects(caller, with_deleted=call.with_deleted)
        return said.SubjectList([self._state(one, with_deleted=call.with_deleted) for one in found])

    @caller_verb(Deed.CHECK_SCHEMA)
    async def check(
        self, caller: Caller, call: said.CheckSchema, context: RequestContext
    ) -> said.SchemaVerdict:
        """Return True if a schema could be the next version, and why not."""
        schema = _schema(call.type, call.references, context)
        self._check_references(caller, schema)
        if call.version:
            found = self._registry.check(call.subject, call.version, schema)
        else:
            found = self._registry.check_all(call.subject, schema)
        return said.SchemaVerdict(found)

    @verb(Deed.DELETE_SCHEMA)
    async def delete(self, call: said.DeleteSchema) -> said.SchemaVersions:
        """Hide a version or a subject, or remove it for good."""
        if call.version:
            one = await self._schemas.delete_version(
                call.subject, call.version, is_permanent=call.permanent
            )
            return said.SchemaVersions([one])
        gone = await self._schemas.delete_subject(call.subject, is_permanent=call.permanent)
        return said.SchemaVersions(list(gone))

    @verb(Deed.CONFIGURE_SUBJECT)
    async def configure(self, call: said.ConfigureSchemas) -> said.CompatibilityState:
        """Set the mode of a subject or of the registry, if one is given; return the mode."""
        if call.compatibility is not None:
            mode = read_compatibility(call.compatibility)
            await self._schemas.configure(call.subject, mode)
        if call.subject is None:
            return said.CompatibilityState(self._registry.compatibility.value)
        return said.CompatibilityState(self._registry.compatibility_of(call.subject).value)

    @verb(Deed.VALIDATE_VALUES)
    async def validate(self, call: said.ValidateValues, context: RequestContext) -> said.Misfits:
        """Return the values that do not fit a version."""
        if sum(call.sizes) != len(context.payload):
            raise InvalidRequestError("sizes: they do not add up to the payload")
        values: list[bytes] = []
        position = 0
        for size in call.sizes:
            values.append(bytes(context.payload[position : position + size]))
            position += size
        found = self._schemas.try_on(call.subject, call.version or None, values)
        misfits = [(row, misfit.path, misfit.reason) for row, misfit in found.items()]
        return said.Misfits(misfits[: said.MISFITS_MAX])

    # As registries over HTTP ask; version None is the latest.

    @caller_verb(Deed.REGISTER_SCHEMA)
    async def add(self, caller: Caller, subject: str, schema: Schema) -> said.SchemaPlace:
        """Add a schema to a subject, if it is compatible."""
        self._check_references(caller, schema)
        place = await self._schemas.register(subject, schema)
        return said.SchemaPlace(place.id, place.version)

    @verb(Deed.DESCRIBE_SCHEMA)
    async def get(self, subject: str, version: int | None, *, with_deleted: bool = False) -> Stored:
        """Return a version of a subject."""
        await self._schemas.settled()
        return self._registry.get(subject, version, with_deleted=with_deleted)

    @caller_verb(Deed.DESCRIBE_SCHEMA)
    async def by_id(self, caller: Caller, schema_id: int) -> Stored:
        """Return a schema by its id."""
        await self._schemas.settled()
        return self._found(caller, schema_id)

    @caller_verb(Deed.DESCRIBE_SCHEMA)
    async def places(self, caller: Caller, schema_id: int, *, with_deleted: bool) -> list[Stored]:
        """Return every version that is this schema."""
        await self._schemas.settled()
        self._found(caller, schema_id)
        return self._places(caller, schema_id, with_deleted=with_deleted)

    @caller_verb(Deed.DESCRIBE_SCHEMA)
    async def lookup(
        self, caller: Caller, subject: str, schema: Schema, *, with_deleted: bool = False
    ) -> Stored:
        """Return the version of a subject that says the same as a schema."""
        self._check_references(caller, schema)
        await self._schemas.settled()
        return self._registry.lookup(subject, schema, with_deleted=with_deleted)

    @verb(Deed.DESCRIBE_SCHEMA)
    async def versions(self, subject: str, *, with_deleted: bool) -> list[SchemaVersion]:
        """Return the versions of a subject."""
        await self._schemas.settled()
        found = self._registry.subject(subject, with_deleted=with_deleted)
        return list(found.all if with_deleted else found.live)

    @verb(Deed.DESCRIBE_SCHEMA)
    async def referrers(self, subject: str, version: int | None) -> list[SchemaId]:
        """Return the ids of the schemas that refer to a version, which may be deleted."""
        await self._schemas.settled()
        stored = self._registry.get(subject, version, with_deleted=True)
        return self._registry.referrers(stored.subject, stored.version)

    @caller_verb(Deed.DESCRIBE_SCHEMA)
    def serialized(self, caller: Caller, schema_id: int) -> bytes | None:
        """Return a Protobuf schema as a descriptor; None where it is of another kind."""
        self._found(caller, schema_id)
        return self._registry.definition(SchemaId(schema_id)).serialized()

    @caller_verb(Deed.LIST_SUBJECTS)
    async def names(self, caller: Caller, *, with_deleted: bool) -> list[SubjectName]:
        """Return the names of all subjects."""
        await self._schemas.settled()
        return [one.name for one in self._subjects(caller, with_deleted=with_deleted)]

    @caller_verb(Deed.CHECK_SCHEMA)
    def compare(
        self, caller: Caller, subject: str, version: int | None, schema: Schema
    ) -> list[str]:
        """Return where a schema is not compatible with one version."""
        self._check_references(caller, schema)
        return self._registry.check(subject, version, schema)

    @caller_verb(Deed.CHECK_SCHEMA)
    def compare_all(self, caller: Caller, subject: str, schema: Schema) -> list[str]:
        """Return why a schema could not be the next version."""
        self._check_references(caller, schema)
        return self._registry.check_all(subject, schema)

    @verb(Deed.DELETE_SCHEMA)
    async def delete_version(self, subject: str, version: int | None, *, is_permanent: bool) -> int:
        """Hide a version, or remove one that is hidden."""
        return await self._schemas.delete_version(subject, version, is_permanent=is_permanent)

    @verb(Deed.DELETE_SCHEMA)
    async def delete_subject(self, subject: str, *, is_permanent: bool) -> list[SchemaVersion]:
        """Hide a subject with all its versions, or remove one that is hidden."""
        return list(await self._schemas.delete_subject(subject, is_permanent=is_permanent))

    # What a caller may see.

    def _subjects(self, caller: Caller, *, with_deleted: bool) -> list[Subject]:
        found = self._registry.subjects(with_deleted=with_deleted)
        return self._gate.visible(caller, Deed.DESCRIBE_SCHEMA, found, lambda one: str(one.name))

    def _places(self, caller: Caller, schema_id: int, *, with_deleted: bool) -> list[Stored]:
        found = self._registry.places(schema_id, with_deleted=with_deleted)
        return self._gate.visible(caller, Deed.DESCRIBE_SCHEMA, found, lambda one: str(one.subject))

    def _found(self, caller: Caller, schema_id: int) -> Stored:
        """Return a schema by its id if the caller may see a subject that has it, or raise."""
        stored = self._registry.by_id(schema_id)
        if self._gate.sees(caller, Deed.DESCRIBE_SCHEMA, stored.subject):
            return stored
        found = self._places(caller, schema_id, with_deleted=True)
        if not found:
            raise SchemaNotFoundError(f"schema {schema_id} not found")
        return found[0]

    def _check_references(self, caller: Caller, schema: Schema) -> None:
        for one in schema.references:
            self._gate.admit(caller, Deed.DESCRIBE_SCHEMA, (one.subject,))

    # Modes; without a subject those of the registry.

    @verb(Deed.DESCRIBE_REGISTRY, Deed.DESCRIBE_SCHEMA, Deed.CONFIGURE_SUBJECT)
    def compatibility(self, subject: str | None = None) -> Compatibility:
        """Return the compatibility mode that counts."""
        registry = self._registry
        return registry.compatibility if subject is None else registry.compatibility_of(subject)

    @verb(Deed.DESCRIBE_SCHEMA)
    def own_compatibility(self, subject: str) -> Compatibility | None:
        """Return the compatibility mode a subject has of its own."""
        return self._registry.own_compatibility(subject)

    @verb(Deed.CONFIGURE_REGISTRY, Deed.CONFIGURE_SUBJECT)
    async def set_compatibility(self, subject: str | None, mode: Compatibility | None) -> None:
        """Set a compatibility mode; None takes that of a subject away."""
        await self._schemas.configure(subject, mode)

    @verb(Deed.DESCRIBE_REGISTRY, Deed.DESCRIBE_SCHEMA, Deed.CONFIGURE_SUBJECT)
    def is_read_only(self, subject: str | None = None) -> bool:
        """Return True if nothing may be changed."""
        return self._registry.is_read_only if subject is None else self._registry.is_closed(subject)

    @verb(Deed.DESCRIBE_SCHEMA)
    def has_own_lock(self, subject: str) -> bool:
        """Return True if a subject says itself if it may be changed."""
        return self._registry.own_lock(subject) is not None

    @verb(Deed.CONFIGURE_REGISTRY, Deed.CONFIGURE_SUBJECT)
    async def lock(self, subject: str | None, *, is_read_only: bool | None) -> None:
        """Forbid or allow changes; None lets a subject follow the registry."""
        await self._schemas.lock(subject, is_read_only=is_read_only)

    @verb(Deed.DESCRIBE_REGISTRY)
    def stats(self) -> SchemaStats:
        """Return the registry in numbers."""
        subjects = [self._stats_of(subject) for subject in self._registry.subjects()]
        return SchemaStats(
            subject_count=len(subjects),
            total_schemas=len(self._registry.library),
            global_compatibility=self._registry.compatibility.value,
            validation_enabled=any(
                topic.settings.is_validated
                for name, topic in self._broker.topics.items()
                if not is_internal(name)
            ),
            cached_validators=len(self._registry.definitions),
            subjects=subjects,
        )

    def _stats_of(self, subject: Subject) -> SubjectStats:
        latest = subject.live[-1]
        names = (subject.name, subject.name.removesuffix(VALUE_SUFFIX))
        topics = [topic for name, topic in self._broker.topics.items() if name in names]
        return SubjectStats(
            subject=subject.name,
            version_count=len(subject.live),
            latest_version=latest,
            latest_schema_id=subject.id_of(latest),
            compatibility=self._registry.compatibility_of(subject.name).value,
            validation_enabled=any(topic.settings.is_validated for topic in topics),
        )

    def _state(self, subject: Subject, *, with_deleted: bool) -> said.SubjectState:
        versions = subject.all if with_deleted else subject.live
        latest = subject.id_of(versions[-1], with_deleted=with_deleted)
        return said.SubjectState(
            subject.name,
            list(versions),
            latest,
            self._registry.library.get(latest).type.value,
            self._registry.compatibility_of(subject.name).value,
        )


def _schema(
    kind: str, references: Iterable[said.SchemaReference], context: RequestContext
) -> Schema:
    try:
        text = bytes(context.payload).decode()
    except UnicodeDecodeError as error:
        raise InvalidSchemaError("invalid schema: it is not UTF-8") from error
    used = [
        Reference(
            name=one.name, subject=SubjectName(one.subject), version=SchemaVersion(one.version)
        )
        for one in references
    ]
    return read_schema(text, kind, used)
